"""What a run leaves behind: its record, the log of its steps, TensorBoard's events, the network and its card."""

import json
import math

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepbilevel_lab.data import load_data
from deepbilevel_lab.records import to_json
from deepbilevel_lab.specs import from_plain, to_plain, with_value
from deepbilevel_lab.training import (
    Interrupted,
    Listener,
    RunFolder,
    RunSpec,
    default_spec,
    load_model,
    read_steps,
    train,
)
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.evaluation import predict
from tests.data.layouts import write_folder

SETTINGS = {
    "data.limit": 256,
    "data.test_limit": 100,
    "group.batch_size": 8,
    "noise": "uniform:0.5",
    "epochs": 3,
    "threads": 1,
    "schedule": "linear",
}


def make_spec(**changes):
    spec = default_spec("digits")
    for key, value in {**SETTINGS, **changes}.items():
        spec = with_value(spec, key, value)
    return spec


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out, spec = tmp_path_factory.mktemp("runs"), make_spec()
    return RunFolder.of(spec, out), train(spec, out=out, data_dir=out), spec


def test_the_record_says_what_ran_where_and_what_came_of_it(finished):
    folder, record, spec = finished
    assert folder.path.name == f"{spec.name}-{spec.id}"
    assert json.loads(folder.record_file.read_text()) == to_json(record)
    assert folder.read_record() == record
    assert from_plain(RunSpec, record.spec) == spec
    assert record.status == "done"
    assert to_json(record)["images"] == {"train": 256, "test": 100}
    assert record.steps == 3 * 4
    assert set(record.environment.packages) >= {"deepbilevel", "torch", "numpy"}
    assert record.environment.processor
    assert record.seconds.wall >= record.seconds.training > 0
    assert record.seconds.cpu > 0
    assert record.samples_per_second == pytest.approx(12 * 64 / record.seconds.training, rel=0.01)


def test_figures_of_training_are_of_the_whole_split_where_that_is_wanted(tmp_path):
    changes = {"noise": None, "epochs": 1}
    few, whole = make_spec(**changes), make_spec(**changes, **{"data.train_figures": "split"})
    assert few.id == make_spec(**changes, **{"data.train_figures": "trained"}).id != whole.id
    parts = build(whole, tmp_path)
    assert (len(parts.train.data), len(parts.rated.data)) == (256, len(load_data("digits", split="train")))
    records = [train(spec, out=tmp_path, data_dir=tmp_path) for spec in (few, whole)]
    assert records[0].final.test == records[1].final.test  # the same network
    assert records[0].final.train != records[1].final.train
    model, data = load_model(RunFolder.of(whole, tmp_path).path).network, parts.rated.data
    right = [each.argmax(1) == data.labels[indices] for indices, each in predict(model, parts.rated)]
    assert records[1].final.train == pytest.approx(100 * float(torch.cat(right).float().mean()))


def test_the_history_has_a_row_per_epoch_with_all_figures(finished):
    _, record, _ = finished
    assert [row.epoch for row in record.history] == [1, 2, 3]
    for row in record.history:
        assert row.gap == row.train - row.test
        assert 0 <= row.train_clean <= 100
        assert math.isfinite(row.loss)
    assert record.final == record.history[-1]
    assert record.best.test == max(row.test for row in record.history)


def test_the_learning_rate_of_a_row_is_that_of_its_last_step(finished):
    _, record, spec = finished
    expected = [spec.optimizer.lr * (1 - (4 * epoch - 1) / 12) for epoch in (1, 2, 3)]
    assert [row.lr for row in record.history] == pytest.approx(expected)


def test_the_log_has_every_step(finished):
    folder, record, _ = finished
    steps = read_steps(folder.steps)
    assert steps["weights"].shape == steps["agreement"].shape == (12, 7)
    assert steps["losses"].shape == steps["norms"].shape == (12, 8)
    assert steps["epoch"].tolist() == [1] * 4 + [2] * 4 + [3] * 4
    np.testing.assert_allclose(np.abs(steps["weights"]).sum(axis=1), 1, rtol=1e-5)
    assert record.history[0].loss == pytest.approx(steps["losses"][:4].mean(), rel=1e-6)
    assert record.history[2].negative_share == pytest.approx((steps["weights"][8:] < 0).mean())


def scalars(folder):
    events = EventAccumulator(str(folder.events))
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_tensorboard_gets_the_history(finished):
    folder, record, _ = finished
    read = scalars(folder)
    assert set(read) == set(to_json(record.history[0])) - {"epoch"}
    assert read["test"] == [(row.epoch, pytest.approx(row.test)) for row in record.history]


def test_tensorboard_gets_every_epoch_once_however_often_a_run_was_stopped(tmp_path):
    class StopAfterAnEpoch(Listener):
        def epoch(self, row):
            raise Interrupted

    spec = make_spec(epochs=3)
    for _ in range(2):
        with pytest.raises(Interrupted):
            train(spec, out=tmp_path, data_dir=tmp_path, listener=StopAfterAnEpoch())
    record = train(spec, out=tmp_path, data_dir=tmp_path)
    assert [step for step, _ in scalars(RunFolder.of(spec, tmp_path))["loss"]] == [1, 2, 3]
    assert len(record.history) == 3


def test_the_network_comes_back_from_its_file_with_its_classes(finished):
    folder, record, spec = finished
    model = load_model(folder.path)
    assert model.spec == spec
    assert model.class_names == tuple("0123456789")
    parts = build(spec, folder.path)
    images = torch.stack([parts.test.data.read(i) for i in range(100)]).float() / 255
    with torch.no_grad():
        predicted = model.network(images).argmax(dim=1)
    accuracy = 100 * (predicted == parts.test.data.labels).double().mean().item()
    assert accuracy == pytest.approx(record.final.test)


def test_the_card_says_what_the_network_was_trained_on(finished):
    folder, record, spec = finished
    card = folder.card_file.read_text()
    for fact in (
        "256 images of `digits`",
        "`uniform:0.5`",
        "Method `bilevel`",
        spec.id,
        f"{record.final.test:.2f} %",
    ):
        assert fact in card
    wrong = float(card.split(" % of them differ")[0].rpartition(" ")[2])
    assert 40 < wrong <= 50


def test_evaluation_may_be_rarer_than_epochs_but_never_misses_the_last(tmp_path):
    record = train(make_spec(evaluate_every=2), out=tmp_path, data_dir=tmp_path)
    assert ["test" in row for row in to_json(record)["history"]] == [False, True, True]


def test_lower_precision_trains_and_keeps_parameters_in_float32(tmp_path):
    spec = make_spec(precision="bfloat16", epochs=1)
    train(spec, out=tmp_path, data_dir=tmp_path)
    parameters = load_model(RunFolder.of(spec, tmp_path).path).network.parameters()
    assert all(parameter.dtype == torch.float32 for parameter in parameters)


def test_batch_norm_with_mini_batches_of_one_image_is_warned_of(tmp_path):
    spec = default_spec("folder", "inception", path=str(tmp_path))
    plain = to_plain(spec)
    plain["group"].update(num_batches=2, batch_size=1)
    write_folder(tmp_path)
    with pytest.warns(UserWarning, match=r"batch_size is 1 and the network has BatchNorm.*cifarnet"):
        build(from_plain(RunSpec, plain), tmp_path)
