"""A run that keeps what it sees of every label: the same observations however it was stopped, and no other training."""

import signal

import numpy as np
import pytest
import torch

from deepbilevel_lab.losses.catalog import LOSSES
from deepbilevel_lab.specs import SpecError, with_value
from deepbilevel_lab.training.auditing import load_audit
from deepbilevel_lab.training.interruption import Interrupted
from deepbilevel_lab.training.run import Listener, train
from deepbilevel_lab.training.sets import load_sets
from tests.cli.trained import SMALL_GROUPS, make_spec, train_run, write_colours
from tests.training.commands import only_folder, outcome
from tests.training.test_combinations import digits
from tests.training.test_packing import same
from tests.training.test_remembering import Stopper

SMALL = {"data__limit": 256, "data__test_limit": 60, "epochs": 2, "audit": True}


def kept(folder):
    return load_audit(folder / "audit.safetensors")


def test_a_stopped_run_ends_with_the_observations_of_an_unbroken_one(tmp_path):
    spec = digits(**SMALL)
    train(spec, out=tmp_path / "unbroken", data_dir=tmp_path)
    for num_groups in (1, 2):
        with pytest.raises(Interrupted):
            train(spec, out=tmp_path / "stopped", data_dir=tmp_path, listener=Stopper(num_groups))
    train(spec, out=tmp_path / "stopped", data_dir=tmp_path)
    unbroken, stopped = (only_folder(tmp_path / name) for name in ("unbroken", "stopped"))
    assert (stopped / "audit.safetensors").read_bytes() == (unbroken / "audit.safetensors").read_bytes()
    assert same(outcome(stopped), outcome(unbroken))
    assert kept(unbroken).audit.visits.sum() == 2 * 2 * spec.group.size


@pytest.mark.parametrize("num_batches", [1, 2, 4])  # the second and the fourth are tests
def test_images_set_aside_are_observed_once_per_test_also_if_it_was_stopped(tmp_path, num_batches):
    pictures = write_colours(tmp_path / "pictures")
    settings = {"data.limit": None, "data.test_limit": None, "mixing": None, "audit": True, **SMALL_GROUPS}
    settings |= {"epochs": 3, "evaluate_every": 1}
    spec = make_spec("folder", path=str(pictures), **settings)

    class InTest(Listener):
        left = num_batches

        def progress(self, progress, loop):
            self.left -= progress.stage == "evaluate"
            if self.left == 0:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted):
        train(spec, out=tmp_path / "stopped", data_dir=tmp_path, listener=InTest())
    train(spec, out=tmp_path / "stopped", data_dir=tmp_path)
    folder = train_run(tmp_path / "unbroken", spec, tmp_path)
    found = kept(folder)
    assert (only_folder(tmp_path / "stopped") / "audit.safetensors").read_bytes() == (
        folder / "audit.safetensors"
    ).read_bytes()
    sets = load_sets(spec.data, tmp_path, noise=None, seed=0)
    assert found.numbers.tolist() == list(range(48))
    assert found.audit.labels.tolist() == [0] * 24 + [1] * 24
    assert (found.audit.visits[sets.test.numbers] == 3).all()
    assert found.class_names == ("blue", "red")


def test_labels_are_those_trained_on_and_images_are_counted_as_in_the_data_set(tmp_path):
    spec = digits(**SMALL, noise="uniform:0.5")
    found = kept(train_run(tmp_path, spec))
    trained = load_sets(spec.data, tmp_path, noise=spec.noise, seed=spec.seed).train
    whole = load_sets(with_value(spec.data, "limit", None), tmp_path, noise=None, seed=0).train
    assert np.array_equal(found.audit.labels, trained.labels)
    assert torch.equal(whole.images[found.numbers], trained.images)
    assert found.spec == spec


def test_keeping_observations_changes_nothing_else(tmp_path):
    spec = digits(**{**SMALL, "audit": False})
    plain, audited = (train_run(tmp_path / str(on), with_value(spec, "audit", on)) / "steps" for on in (False, True))
    for path in plain.iterdir():
        assert (audited / path.name).read_bytes() == path.read_bytes()
    assert not (plain.parent / "audit.safetensors").exists()


def test_without_it_a_run_has_the_id_it_always_had():
    assert digits(audit=False).id == digits().id != digits(audit=True).id


def test_joined_passes_observe_as_often_as_single_ones(tmp_path):
    single, joined = (
        kept(train_run(tmp_path / passes, digits(**SMALL, passes=passes))).audit for passes in ("single", "joined")
    )
    assert np.array_equal(single.visits, joined.visits)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.filterwarnings("ignore:the estimated transition has almost no inverse")
def test_every_loss_shows_each_mini_batch_once(tmp_path, loss):
    spec = digits(**{**SMALL, "epochs": 4}, method="sgd", loss=loss)
    audit = kept(train_run(tmp_path, spec)).audit
    assert audit.visits.sum() == 4 * (256 // spec.group.size) * spec.group.size
    assert audit.issues().num_left_out == 0


def test_blended_images_are_refused():
    with pytest.raises(SpecError, match=r"audit needs to see each image by itself, and mixing mixup blends them"):
        digits(audit=True, mixing="mixup")


@pytest.mark.parametrize("content", [b"", b"12345678" * 9])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "audit.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"audit\.safetensors is damaged: .*train the run again"):
        load_audit(tmp_path / "audit.safetensors")
