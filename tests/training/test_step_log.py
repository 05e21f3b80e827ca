"""The log of steps: nothing is lost between reports, checkpoints and files."""

import json
import zipfile

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from deepbilevel import Bilevel, GroupStep
from deepbilevel.contract import Report
from deepbilevel.rules.average import Uniform
from deepbilevel_lab.training.packing import pack, unpack
from deepbilevel_lab.training.step_log import StepLog, read_steps, write_steps
from tests.models import build, images
from tests.test_memory import Forbidden

K = 3


def reports(make, count):
    """Return the reports of real steps; every step has other images."""
    model = build("CifarNet-like")
    step = make(model)
    return [
        step.step_over(images(K, seed=number), lambda batch: F.cross_entropy(model(batch[0]), batch[1]))
        for number in range(count)
    ]


RULES = {
    "bilevel": lambda model: Bilevel(model, num_batches=K),
    "bilevel, per layer": lambda model: Bilevel(model, num_batches=K, per_layer=True),
    "average": lambda model: GroupStep(model, Uniform(use_validation=True), num_batches=K),
    "average, first left out": lambda model: GroupStep(model, Uniform(), num_batches=K),
}
EVERY_RULE = pytest.mark.parametrize("make", RULES.values(), ids=RULES)


def logged(seen):
    log = StepLog()
    for report in seen:
        log.add(report)
    return log


def same(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@EVERY_RULE
def test_columns_are_the_reports_row_by_row(make):
    seen = reports(make, 4)
    columns = logged(seen).columns()
    assert {"weights", "losses", "finite"} <= set(columns)
    assert ("agreement" in columns) == ("norms" in columns) == hasattr(seen[0], "agreement")
    for name, column in columns.items():
        assert torch.equal(column, torch.stack([getattr(report, name) for report in seen]))


def test_adding_does_not_wait_for_the_device():
    seen = reports(RULES["bilevel"], 3)
    with Forbidden():
        log = logged(seen)
    assert len(log.columns()["losses"]) == 3


def test_reading_in_between_changes_nothing():
    seen = reports(RULES["bilevel"], 5)
    log = StepLog()
    for report in seen:
        log.add(report)
        log.columns()
    assert same(log.columns(), logged(seen).columns())


@EVERY_RULE
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_a_log_goes_on_after_a_checkpoint_as_if_it_had_never_stopped(make, stop):
    seen = reports(make, 5)
    plain, tensors = pack(logged(seen[:stop]).state_dict())
    resumed = StepLog()
    resumed.load_state_dict(unpack(json.loads(json.dumps(plain)), tensors))
    for report in seen[stop:]:
        resumed.add(report)
    unbroken = logged(seen)
    assert same(resumed.columns(), unbroken.columns())
    assert resumed.summary() == unbroken.summary()


def test_what_was_saved_stays_as_it_was_while_the_log_goes_on():
    seen = reports(RULES["bilevel"], 3)
    log = logged(seen[:1])
    state = log.state_dict()
    for report in seen[1:]:
        log.add(report)
    log.columns()
    log.clear()
    assert len(state["losses"]) == 1


def test_a_state_of_no_steps_is_empty():
    log = logged(reports(RULES["bilevel"], 2))
    log.clear()
    assert log.state_dict() == {}
    log.load_state_dict({})
    assert log.columns() == {}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: rows of a checkpoint lie on the CPU")
def test_rows_of_a_gpu_follow_those_of_a_checkpoint():
    log = StepLog()
    log.load_state_dict({"losses": torch.ones(1, 2)})
    log.add(Report(**{name: torch.ones(2, device="cuda") for name in ("weights", "losses", "finite")}))
    assert log.columns()["losses"].tolist() == [[1, 1], [1, 1]]


def report(weights, losses, finite):
    return Report(weights=torch.tensor(weights), losses=torch.tensor(losses), finite=torch.tensor(finite))


def test_the_summary_by_hand():
    log = logged(
        [
            report([0.5, -0.5], [1.0, 2.0, 3.0], [True, True, True]),
            report([0.0, 0.0], [4.0, 5.0, 6.0], [False, True, True]),
            report([0.0, -1.0], [0.0, 0.0, 6.0], [True, False, False]),
        ]
    )
    assert log.summary() == {
        "loss": 3.0,
        "negative_share": pytest.approx(1 / 3),
        "zeroed_steps": 1,
        "skipped_batches": 3,
    }


def test_a_step_counts_as_zeroed_only_if_no_layer_learned():
    log = logged(
        [
            report([[0.0, 0.0], [0.0, 1.0]], [1.0], [True]),
            report([[0.0, 0.0], [0.0, 0.0]], [1.0], [True]),
        ]
    )
    assert log.summary()["zeroed_steps"] == 1


def test_the_summary_is_plain_json():
    summary = logged(reports(RULES["bilevel, per layer"], 2)).summary()
    assert json.loads(json.dumps(summary)) == summary
    assert summary["loss"] > 0


@EVERY_RULE
def test_files_give_back_every_step_with_its_epoch(make, tmp_path):
    seen = reports(make, 5)
    parts = logged(seen[:3]).columns(), logged(seen[3:]).columns()
    for epoch, columns in enumerate(parts):
        write_steps(tmp_path / "steps", epoch, columns)
    found = read_steps(tmp_path / "steps")
    assert found.pop("epoch").tolist() == [0, 0, 0, 1, 1]
    assert set(found) == set(parts[0])
    for name, values in found.items():
        expected = torch.cat([columns[name] for columns in parts]).numpy()
        assert values.dtype == expected.dtype
        assert np.array_equal(values, expected)


def test_epochs_come_in_their_order_however_many_digits_they_have(tmp_path):
    for epoch in (100_000, 99_999, 2, 10):
        write_steps(tmp_path, epoch, {"losses": torch.full((1, 1), float(epoch))})
    found = read_steps(tmp_path)
    assert found["epoch"].tolist() == found["losses"].flatten().tolist() == [2, 10, 99_999, 100_000]


def test_an_epoch_written_again_takes_the_place_of_the_first(tmp_path):
    for value in (1.0, 2.0):
        write_steps(tmp_path, 0, {"losses": torch.full((2, 1), value)})
    assert read_steps(tmp_path)["losses"].tolist() == [[2.0], [2.0]]
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000.npz"]


def test_the_same_steps_give_the_same_bytes_at_any_time(tmp_path):
    columns = logged(reports(RULES["bilevel"], 2)).columns()
    for epoch in (0, 1):
        write_steps(tmp_path, epoch, columns)
    one, other = sorted(tmp_path.iterdir())
    assert one.read_bytes() == other.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_before_the_first_epoch_there_is_nothing(tmp_path):
    assert read_steps(tmp_path) == {}
    assert read_steps(tmp_path / "nowhere") == {}


def test_a_half_written_file_is_not_read(tmp_path):
    write_steps(tmp_path, 0, {"losses": torch.ones(1, 1)})
    (tmp_path / ".epoch-00001.npz.0123abcd.tmp").write_bytes(b"half")
    assert read_steps(tmp_path)["epoch"].tolist() == [0]


def test_an_epoch_tells_how_its_weights_were_distributed():
    seen = reports(RULES["bilevel"], 6)
    summary = logged(seen).summary()
    weights = torch.cat([report.weights for report in seen]).sort().values  # 12 of them
    assert summary["weight_p50"] == pytest.approx(weights[5:7].mean().item())
    assert summary["weight_p5"] <= summary["weight_p25"] <= summary["weight_p75"] <= summary["weight_p95"]
    assert not any(name.startswith("weight_p") for name in logged(reports(RULES["average"], 1)).summary())
