"""The cost of runs: visits to the image, and hours from a probe with a clock of our own."""

import json
from dataclasses import replace
from itertools import count

import pytest
import torch

from deepbilevel.methods import SgdSpec
from deepbilevel.sampling.spec import GroupSpec
from deepbilevel.training import default_spec
from deepbilevel.training.build import build
from deepbilevel.training.loop import TrainingLoop
from deepbilevel_paper import find_experiment
from deepbilevel_paper.estimate import Probe, Speed, evaluated_images, sample_visits
from deepbilevel_paper.made_data import make_data

SPEC = replace(default_spec("cifar10"), threads=1, device="cpu", group=GroupSpec(2, 4))


def ticking(step=0.25):
    """Return a clock that goes on by so much whenever somebody looks."""
    ticks = count()
    return lambda: step * next(ticks)


@pytest.mark.parametrize("row", range(0, 24, 4))
def test_visits_are_what_a_run_trains_on(row, tmp_path):
    make_data(tmp_path, ["cifar10"])
    spec = replace(find_experiment("table1").cells("smoke")[row].spec, epochs=3)
    parts = build(spec, tmp_path)
    assert sample_visits(spec) == 3 * parts.groups.num_groups * spec.group.size


def test_visits_and_evaluations_of_the_papers_runs():
    cifar, voc = find_experiment("table1").cells()[0].spec, find_experiment("voc2007").cells()[-1].spec
    assert sample_visits(cifar) == 200 * 390 * 128
    assert evaluated_images(cifar) == 200 * 60_000
    assert sample_visits(voc) == 1000 * 78 * 64
    assert evaluated_images(voc) == 20 * (5_011 + 10 * 4_952)
    assert evaluated_images(replace(cifar, evaluate_every=150)) == 2 * 60_000  # and after the last


def test_a_run_is_evaluated_as_often_as_counted(tmp_path):
    make_data(tmp_path, ["cifar10"])
    (cell, *_) = find_experiment("table1").cells("smoke")
    spec = replace(cell.spec, epochs=5, evaluate_every=2)
    loop = TrainingLoop(build(spec, tmp_path))
    for _ in loop.run():
        pass
    times = sum("test" in row for row in loop.history)
    assert evaluated_images(spec) == times * (spec.data.limit + spec.data.test_limit)


def test_hours_follow_from_visits_and_speed():
    probe = Probe(clock=ticking())
    # Every step takes one tick of this clock: a group of 8 in training, 64 images in evaluation.
    assert probe.speed(SPEC) == Speed(training=8 / 0.25, evaluation=64 / 0.25)
    seconds = sample_visits(SPEC) * 0.25 / 8 + evaluated_images(SPEC) * 0.25 / 64
    assert probe.seconds(SPEC) == pytest.approx(seconds)
    assert probe.hours([SPEC, SPEC]) == pytest.approx(2 * seconds / 3600)


def test_a_kind_of_run_is_measured_once(tmp_path):
    file = tmp_path / "folder" / "speeds.json"
    probe = Probe(file, clock=ticking())
    first = probe.speed(SPEC)
    probe.clock = ticking(2.0)
    assert probe.speed(replace(SPEC, seed=3, epochs=7)) == first
    assert Probe(file, clock=ticking(2.0)).speed(SPEC) == first
    assert Probe(clock=ticking(2.0)).speed(SPEC) != first
    # What takes other passes is measured: other groups, a group as one batch.
    for other in (replace(SPEC, group=GroupSpec(4, 2)), replace(SPEC, method=SgdSpec())):
        assert probe.speed(other) != first
    assert len(json.loads(file.read_text())) == 3


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"a": 1}', '{"a": {"training": 1}}'])
def test_a_damaged_file_of_speeds_is_measured_again(content, tmp_path):
    file = tmp_path / "speeds.json"
    file.write_text(content)
    assert Probe(file, clock=ticking()).speed(SPEC).training == 32
    assert list(json.loads(file.read_text()).values()) == [{"training": 32.0, "evaluation": 256.0}]


def test_a_probe_leaves_random_numbers_and_threads_alone():
    before = torch.get_rng_state()
    Probe(clock=ticking()).speed(replace(SPEC, threads=2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == 1
