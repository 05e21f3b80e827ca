"""The loop of a run is the same in two and three processes as in one: images, steps, metrics, and where it fails."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

from deepbilevel_lab.data import OwnData
from deepbilevel_lab.data.table import ColumnsSpec
from deepbilevel_lab.processes import find_processes
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.evaluation import predict
from deepbilevel_lab.training.inputs import with_own_data
from deepbilevel_lab.training.loop import DivergedError, TrainingLoop
from tests.data.layouts import write_jpeg
from tests.data.tables import write_patients
from tests.distributed.test_equality import equal, same
from tests.training.test_combinations import digits

SMALL = {"group__num_batches": 5, "group__batch_size": 4, "data__limit": 100, "data__test_limit": 40, "epochs": 2}
CERTAIN = {"network__dropout": 0.0}
ADAM = {"optimizer": "Adam", "optimizer__lr": 0.001}
RUNS = {
    "bilevel": CERTAIN,
    "shared dropout, averaged validation": {"shared_dropout": True, "method": "momentum"},
    "random weights, a holdout": {**CERTAIN, "method__weighting": "random", "group__holdout": 0.2},
    "per layer, mixed": {**CERTAIN, "method__per_layer": True, "mixing": "mixup"},
    "cross-validated with Adam": {**CERTAIN, "method": "cross-validated", "method__shrink": "update", **ADAM},
    "uniform": {**CERTAIN, "method": "uniform"},
    "and-mask": {**CERTAIN, "method": "and-mask"},
    "median-of-three": {**CERTAIN, "method": "median-of-three"},
    "gsnr": {**CERTAIN, "method": "gsnr"},
    "forward-correction": {**CERTAIN, "loss": "forward-correction"},
    "noise-layer": {**CERTAIN, "loss": "noise-layer"},
}


def doubled(parts):
    """Compute in float64: then only another order of sums is left to differ, and hardly does."""
    for module in (parts.model, parts.objective):
        if module is not None:
            module.double()
            module.load_state_dict(module.state_dict())  # who keeps an eye on the buffers sees that these are others
    parts.model.register_forward_pre_hook(lambda module, inputs: (inputs[0].double(),))
    return parts


def everything(loop):
    """Run to the end, and return all there is to compare."""
    stages = [(progress.stage, progress.epoch, progress.done, progress.total) for progress in loop.run()]
    parts, state = loop.parts, loop.state_dict()
    return {
        "epochs": [stage for stage in stages if stage[0] != "evaluate"],
        **{name: state[name] for name in ("sampler", "zeroed_in_a_row", "objective")},
        "history": [
            {name: torch.tensor(value, dtype=torch.float64) for name, value in row.items()} for row in state["history"]
        ],
        "model": parts.model.state_dict(),
        "steps": loop.finished_steps,
        "next random number": torch.rand(()) if "random" in str(parts.spec.method) else None,
    }


def run_digits(spoil=None, **settings):
    parts = doubled(build(digits(**{**SMALL, **settings}), Path()))
    if spoil is not None:
        parts = replace(parts, step=spoilt(parts, *spoil))
    return everything(TrainingLoop(parts))


def spoilt(parts, image, by):
    """Let the mini-batches with an image have a loss, or a gradient alone, that is not finite."""

    def loss_of(batch):
        loss = parts.spec.loss(parts.model(batch.images), batch.labels)
        if image not in batch.indices:
            return loss
        zero = 0 * next(parts.model.parameters()).sum()
        return loss + (zero.sqrt() if by == "gradient" else torch.nan * zero)

    return lambda batches: parts.method.step_over(batches, loss_of)


def check(processes, run, **arguments):
    expected, results = run(**arguments), processes.run(run, **arguments)
    for result in results:
        same(result, expected, rtol=1e-9, atol=1e-9)
        equal(result, results[0])
    return results[0]


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_a_run_in_three_processes_equals_one(three, settings):
    check(three, run_digits, **settings)


@pytest.mark.parametrize("k", [4, 5])
def test_any_number_of_processes_equals_one(processes, k):
    check(processes, run_digits, **CERTAIN, group__num_batches=k)


def run_rows(path, **settings):
    spec = with_value(default_spec("table", path=path, columns=ColumnsSpec("state")), "network.dropout", 0)
    for key, value in {
        "epochs": 2,
        "threads": 1,
        "device": "cpu",
        "method": "bilevel",
        "mixing": None,
        **settings,
    }.items():
        spec = with_value(spec, key, value)
    return everything(TrainingLoop(doubled(build(spec, Path()))))


def test_rows_of_a_table_are_dealt_as_images_are(three, tmp_path):
    check(three, run_rows, path=str(write_patients(tmp_path / "table.csv", num_rows=100)))


def run_items(**settings):
    own = OwnData(TensorDataset(torch.arange(120.0).reshape(60, 2) / 120, torch.arange(60) % 2))
    spec = with_value(default_spec("dataset"), "network.dropout", 0)
    settings = {"group.batch_size": 3, "method": "bilevel", "mixing": None, **settings}
    for key, value in {"epochs": 2, "threads": 1, "device": "cpu", **settings}.items():
        spec = with_value(spec, key, value)
    spec, sets = with_own_data(spec, own)
    return everything(TrainingLoop(doubled(build(spec, Path(), own=sets))))


def test_items_from_python_are_dealt_as_images_are(three):
    check(three, run_items)


def image_of(mini_batch):
    """Return an image of a mini-batch of the first group."""
    return list(build(digits(**SMALL), Path()).groups)[mini_batch][0]


def test_a_mini_batch_that_is_skipped_is_skipped_by_all(two):
    result = check(two, run_digits, spoil=(image_of(3), "gradient"), **CERTAIN)
    assert result["history"][0]["skipped_batches"] >= 1


def fail(**arguments):
    with pytest.raises(DivergedError) as error:
        run_digits(**arguments)
    return str(error.value)


def test_all_stop_at_a_loss_that_is_not_finite_and_name_its_images(three):
    spoil = image_of(4), "loss"
    said = fail(spoil=spoil, **CERTAIN)
    assert said.startswith(f"the loss of mini-batch 4 of step 1 (epoch 1, training images {spoil[0]}, ")
    assert three.run(fail, spoil=spoil, **CERTAIN) == [said] * 3


def masks_and_weights(**settings):
    result = run_digits(**settings)
    return result["model"], result["history"], result["steps"]


def test_dropout_that_is_not_shared_does_not_depend_on_how_many_processes_there_are(two, three):
    results = [*two.run(masks_and_weights), *three.run(masks_and_weights)]
    for result in results:
        same(list(result), list(results[0]), rtol=1e-9, atol=1e-9)
    alone = masks_and_weights()
    assert not torch.allclose(results[0][2]["losses"], alone[2]["losses"])  # other masks: the documents say so


def predict_digits():
    parts = build(digits(), Path())
    found = [predict(parts.model, feed, processes=find_processes()) for feed in (parts.train, parts.test)]
    return [[torch.cat(column) for column in zip(*each, strict=True)] for each in found]


def test_predictions_are_those_of_one_process_in_their_order(several):
    expected = predict_digits()
    assert [len(indices) for indices, _ in expected] == [1347, 450]  # six batches, and two
    for result in several.run(predict_digits):
        equal(result, expected)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    root = tmp_path_factory.mktemp("photographs")
    for number in range(24):
        write_jpeg(root / ("dark", "bright")[number % 2] / f"{number}.jpg", (44, 36), 60 + 100 * (number % 2))
    return root


def inception(root):
    """Return a run of a network with BatchNorm on files, augmented in every way."""
    small = {"num_batches": 3, "batch_size": 2}
    spec = default_spec("folder", "inception", path=str(root))
    return replace(
        spec,
        data=replace(spec.data, view="random-area"),
        network=replace(spec.network, dropout=0.0),
        group=replace(spec.group, **small),
        optimizer=replace(spec.optimizer, lr=0.01),
        epochs=1,
        device="cpu",
        threads=1,
    )


def run_photographs(root):
    return everything(TrainingLoop(doubled(build(inception(root), root))))


def test_batch_norm_and_augmented_files_are_those_of_one_process(two, photographs):
    check(two, run_photographs, root=photographs)


@pytest.mark.parametrize("mixing", [None, "mixup"])
def test_a_part_of_a_group_is_prepared_as_within_the_whole(photographs, mixing):
    spec = inception(photographs)
    spec = replace(spec, group=replace(spec.group, num_batches=5), mixing=digits(mixing=mixing).mixing)
    for data in (spec.data, replace(spec.data, view="thumbnail", limit=16)):
        parts = build(replace(spec, data=data), photographs)
        whole = next(parts.train.groups(parts.groups, 1, 0, num_parts=5))
        for own in ([0], [1, 3], [0, 2, 4]):
            parts.groups.set_epoch(0)
            some = next(parts.train.groups(parts.groups, 1, 0, num_parts=5, own=own))
            for place, batch in zip(own, some, strict=True):
                for name in ("indices", "images", "labels"):
                    assert torch.equal(getattr(batch, name), getattr(whole[place], name)), (own, place, name)
            assert len({batch.seed for batch in some}) == len(own)
