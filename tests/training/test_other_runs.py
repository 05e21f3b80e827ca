"""Runs that start from other runs: from their network, or from the labels it predicts."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from deepbilevel.rules.average import Sgd
from deepbilevel_lab.networks.weights_file import read_weights
from deepbilevel_lab.noise import load_noisy_labels
from deepbilevel_lab.run_references import refer_to
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training import RunFolder, default_spec, train
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.folder import find_runs
from deepbilevel_lab.training.loop import TrainingLoop
from deepbilevel_lab.training.other_runs import RunsBeside, in_order, needs
from deepbilevel_lab.training.sets import load_sets
from deepbilevel_lab.training.spec import GroupSpec

# A network that has hardly learned may predict some class too rarely for a group.
SPEC = replace(default_spec("digits"), epochs=1, threads=1, device="cpu", group=GroupSpec(4, 8, on_rare="repeat"))
FIRST = replace(SPEC, data=replace(SPEC.data, limit=300, test_limit=50))
LABELLED = replace(FIRST, data=replace(FIRST.data, labels=refer_to(FIRST.id)))
TUNED = replace(LABELLED, network=replace(FIRST.network, weights=refer_to(LABELLED.id)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    train(FIRST, out=out, data_dir=out)
    return out


def folder(runs):
    return RunFolder.of(FIRST, runs)


def test_a_spec_says_which_runs_it_needs():
    assert needs(FIRST) == []
    assert needs(LABELLED) == [FIRST.id]
    assert needs(TUNED) == [LABELLED.id, FIRST.id]
    assert needs(replace(TUNED, data=replace(FIRST.data, labels=refer_to(LABELLED.id)))) == [LABELLED.id]


def test_runs_are_put_in_order_and_none_comes_twice():
    other = replace(FIRST, seed=5)
    assert in_order([TUNED, other, LABELLED, FIRST, TUNED]) == [FIRST, LABELLED, TUNED, other]
    assert in_order([other, LABELLED]) == [other, LABELLED]  # a run that is not among them is left to be found


def test_weights_are_those_of_the_other_run(runs):
    spec = replace(FIRST, network=replace(FIRST.network, weights=refer_to(FIRST.id)))
    model = build(spec, runs, runs=RunsBeside(runs, runs)).model
    for name, value in read_weights(folder(runs).model_file).items():
        assert torch.equal(model.state_dict()[name], value), name


def test_weights_beside_the_data_are_found_there(runs, tmp_path):
    (tmp_path / "start.safetensors").write_bytes(folder(runs).model_file.read_bytes())
    spec = replace(FIRST, network=replace(FIRST.network, weights="data:start.safetensors"))
    model = build(spec, tmp_path).model
    for name, value in read_weights(folder(runs).model_file).items():
        assert torch.equal(model.state_dict()[name], value), name


def test_labels_are_predicted_once_and_say_where_they_come_from(runs, tmp_path):
    train(LABELLED, out=runs, data_dir=tmp_path)
    written = folder(runs).labels_file.read_bytes()
    noisy, provenance = load_noisy_labels(folder(runs).labels_file)
    assert (provenance.kind, provenance.seed) == ("model", FIRST.seed)
    assert provenance.dataset == "digits train, 300 images in proportion to the classes"
    assert FIRST.id in provenance.note
    # After one epoch it may do no better than guess, which is right for 30 of the 300, give or take 5. None or all of
    # them right would be labels that nobody predicted.
    assert 0 < noisy.rate < 1
    data = load_sets(LABELLED.data, tmp_path, noise=None, seed=0, runs=RunsBeside(runs, tmp_path)).train
    assert np.array_equal(data.labels, noisy.labels)
    assert np.array_equal(data.clean_labels, noisy.clean_labels)
    assert np.array_equal(data.clean_labels, load_sets(FIRST.data, tmp_path, noise=None, seed=0).train.labels)
    # Another seed trains on the same labels, and nothing is predicted again.
    stamp = folder(runs).labels_file.stat().st_mtime_ns
    train(replace(LABELLED, seed=3), out=runs, data_dir=tmp_path)
    assert folder(runs).labels_file.stat().st_mtime_ns == stamp
    # Made anew they are the same.
    folder(runs).labels_file.unlink()
    load_sets(LABELLED.data, tmp_path, noise=None, seed=0, runs=RunsBeside(runs, tmp_path))
    assert folder(runs).labels_file.read_bytes() == written


def test_a_run_can_need_a_run_that_needs_a_run(runs):
    train(LABELLED, out=runs, data_dir=runs)
    record = train(TUNED, out=runs, data_dir=runs)
    assert record.status == "done"
    # What it started from says more than its figures, which may happen to be equal for both kinds of labels.
    parts = build(TUNED, runs, runs=RunsBeside(runs, runs))
    noisy, _ = load_noisy_labels(folder(runs).labels_file)
    assert np.array_equal(parts.train.data.labels, noisy.labels)
    assert record.history[0].train_clean is not None
    for name, value in read_weights(RunFolder.of(LABELLED, runs).model_file).items():
        assert torch.equal(parts.model.state_dict()[name], value), name
    assert {FIRST.id, LABELLED.id, TUNED.id} <= {each.read_record().id for each in find_runs(runs)}


def test_a_stopped_run_goes_on_with_the_labels_it_had(runs, tmp_path):
    beside = RunsBeside(runs, tmp_path)
    spec = replace(LABELLED, epochs=2, seed=1)
    unbroken = TrainingLoop(build(spec, tmp_path, runs=beside))
    list(unbroken.run())
    stopped = TrainingLoop(build(spec, tmp_path, runs=beside))
    for _ in islice(stopped.run(), 12):
        pass
    state = stopped.state_dict()  # before anything is built, which draws random numbers
    resumed = TrainingLoop(build(spec, tmp_path, runs=beside))
    resumed.load_state_dict(state)
    list(resumed.run())
    for one, other in zip(unbroken.parts.model.parameters(), resumed.parts.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_run_that_is_missing_or_unfinished_is_named_with_the_remedy(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match=f"run {FIRST.id} is needed, but not in {tmp_path}; train it first"):
        train(LABELLED, out=tmp_path, data_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    started = RunFolder.of(FIRST, tmp_path)
    started.path.mkdir()
    remedy = f"deepbilevel train --spec {started.spec_file} --out {tmp_path}"
    spec = replace(FIRST, network=replace(FIRST.network, weights=refer_to(FIRST.id)))
    with pytest.raises(FileNotFoundError, match=f"run {FIRST.id} is needed, and is not finished; .*{remedy}"):
        train(spec, out=tmp_path, data_dir=tmp_path)
    with pytest.raises(ValueError, match=f"run {FIRST.id} is needed, but no folder of runs is at hand"):
        build(LABELLED, tmp_path)


def test_labels_of_other_images_are_refused(runs, tmp_path):
    spec = replace(LABELLED, data=replace(LABELLED.data, limit=200))
    with pytest.raises(ValueError, match=r"is for other images \(digits train, 300 .*must have the data.name"):
        train(spec, out=runs, data_dir=tmp_path)


@pytest.mark.parametrize("reference", ["run:", "run:12345", "run:0123456789a", "run:0123456789/..", "run:ABCDEF0123"])
def test_a_reference_that_names_no_run_is_refused_by_the_spec(reference):
    with pytest.raises(SpecError, match=f"weights '{reference}' names no run: an id is ten of the digits"):
        replace(FIRST.network, weights=reference)
    with pytest.raises(SpecError, match=f"labels '{reference}' names no run"):
        replace(FIRST.data, labels=reference)


def test_predicted_labels_do_not_go_with_several_labels_or_with_noise():
    with pytest.raises(SpecError, match="are one class per image; voc2007 has several"):
        replace(default_spec("voc2007").data, labels=refer_to(FIRST.id))
    with pytest.raises(SpecError, match=r"would fall on data.labels 'run:.*noisy already"):
        replace(LABELLED, noise="uniform:0.5")


def test_ids_of_ordinary_runs_are_what_they_were():
    # Records of runs made before there were references are found by these.
    plain = replace(default_spec("cifar10"), method=Sgd(), threads=1, device="cpu")
    assert plain.id == "0f49d0fd60"
