"""Damaged files of every kind: each is read as it was, or refused with a message that names it."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepbilevel_lab.data import load_data
from deepbilevel_lab.data.decisions import apply_decisions
from deepbilevel_lab.data.decode import decode_rgb
from deepbilevel_lab.data.image_files import load_csv
from deepbilevel_lab.noise import NoiseSpec, Provenance, load_noisy_labels, save_noisy_labels
from deepbilevel_lab.records import RunRecord, SweepRecord, read_file
from deepbilevel_lab.training.auditing import load_audit
from deepbilevel_lab.training.checkpoints import Checkpoints
from tests.cli.trained import SMALL_GROUPS, make_spec, train_run
from tests.hostile.mutations import mutate
from tests.training.test_packing import same

HEAD = 4_000
"""Of large files the beginning is damaged: that is what is interpreted."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    settings = {**SMALL_GROUPS, "data.limit": 64, "data.test_limit": 20, "audit": True}
    return train_run(tmp_path_factory.mktemp("runs"), make_spec(**settings))


class Kind:
    names_file = True


class Record(Kind):
    name = "record.json"
    names_file = False  # whoever reads it does

    def make(self, path, run):
        shutil.copy(run / "record.json", path)

    def read(self, path):
        read_file(RunRecord, path)


class Sweep(Kind):
    name = "sweep-x.json"
    names_file = False

    def make(self, path, run):
        shutil.copy(next((Path(__file__).parents[2] / "results").rglob("sweep-*.json")), path)

    def read(self, path):
        read_file(SweepRecord, path)


class Observations(Kind):
    name = "audit.safetensors"

    def make(self, path, run):
        shutil.copy(run / "audit.safetensors", path)

    def read(self, path):
        load_audit(path)


class Table(Kind):
    name = "table.csv"

    def make(self, path, run):
        path.write_text("path,label,clean_label\n" + "".join(f"images/{n}.jpg,{n % 3},a\n" for n in range(9)))

    def read(self, path):
        load_csv(path)


class Decisions(Kind):
    name = "corrected.csv"
    digits = load_data("digits", split="test")

    def make(self, path, run):
        label = self.digits.class_names[int(self.digits.labels[0])]
        path.write_text(f"index,path,given_label,decision,new_label\n0,,{label},relabel,3\n1,,,drop,\n2,,,keep,2\n")

    def read(self, path):
        apply_decisions(self.digits, path, path.parent)


class NoisyLabels(Kind):
    name = "labels.npz"

    def make(self, path, run):
        noisy = NoiseSpec("uniform", 0.5).apply(np.arange(60) % 10, 10, 0)
        save_noisy_labels(path, noisy, Provenance(kind="uniform", dataset="none", seed=0, note=""))

    def read(self, path):
        load_noisy_labels(path)


class Photo(Kind):
    def __init__(self, kind):
        self.name = f"photo.{kind}"

    def make(self, path, run):
        pixels = np.random.RandomState(0).randint(0, 255, (9, 11, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)

    def read(self, path):
        decode_rgb(path)


PHOTOS = map(Photo, ["jpg", "png", "gif", "webp"])
KINDS = [Record(), Sweep(), Observations(), Table(), Decisions(), NoisyLabels(), *PHOTOS]
COUNTS = [
    pytest.param(range(150), id="quick"),
    pytest.param(range(1_000, 3_000), marks=pytest.mark.slow, id="long"),
]


def refusal(read, path):
    """Return what a reader says about a file, or None if it reads it; nothing else may be raised."""
    try:
        read(path)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def attack(kind, folder, run, seeds):
    """Damage a file once per seed; return how often it was refused."""
    path = folder / kind.name
    kind.make(path, run)
    content, refused = path.read_bytes(), 0
    for seed in seeds:
        path.write_bytes(mutate(content[:HEAD], random.Random(seed)) + content[HEAD:])
        said = refusal(kind.read, path)
        assert said is None or not kind.names_file or kind.name in said, (seed, said)
        refused += said is not None
    return refused


@pytest.mark.filterwarnings("ignore")  # Pillow warns of much that it reads in the end
@pytest.mark.parametrize("seeds", COUNTS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_damaged_files(kind, seeds, run, tmp_path):
    assert attack(kind, tmp_path, run, seeds) > 0


def attack_checkpoints(folder, seeds):
    """Damage the newer of two checkpoints; a state that is not the one that was saved must never come back."""
    passed = []
    checkpoints = Checkpoints(folder, on_damaged=lambda path, reason: passed.append(path.name))
    states = {
        step: {"weights": torch.full((50,), step / 2), "history": [step, None, "é"], "n": step} for step in (1, 2)
    }
    for step, state in states.items():
        checkpoints.save(step, state)
    newest = checkpoints.paths()[0]
    content = newest.read_bytes()
    for seed in seeds:
        newest.write_bytes(mutate(content, random.Random(seed)))
        step, state = checkpoints.load_latest()
        assert same(state, states[step]), seed
    return len(passed)


@pytest.mark.parametrize("seeds", COUNTS)
def test_damaged_checkpoints(seeds, tmp_path):
    assert attack_checkpoints(tmp_path, seeds) > 0


def test_the_record_of_a_stranger_may_say_anything(run, tmp_path):
    """Well-formed JSON of other shapes: keys gone, values of other types."""
    plain = json.loads((run / "record.json").read_text())
    path = tmp_path / "record.json"
    for key in plain:
        for value in (None, -1, "x", [], {}, [[]], {"a": {}}, 1e400):
            path.write_text(json.dumps({**plain, key: value}))
            assert refusal(Record().read, path) != ""
