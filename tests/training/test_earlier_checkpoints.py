"""Runs that version 0.1 began: this one goes on with them to the bits they would have had, or says that it cannot.

A checkpoint of that version has 600 kB, so it is not kept here: one of today is put in the form it had then.
"""

import json
import signal
from pathlib import Path

import pytest

from deepbilevel_lab.specs import from_plain, to_plain
from deepbilevel_lab.training.checkpoints import Checkpoints
from deepbilevel_lab.training.earlier_specs import as_first_written
from deepbilevel_lab.training.spec import RunSpec
from tests.training.commands import DIGITS, Command, only_folder, outcome, run, run_to_the_end
from tests.training.test_packing import same

COMMAND = (*DIGITS, "--epochs", 3, "--limit", 256, "--set", "group.batch_size=8")
# As the commands are written today, and as they were then.
METHODS = {
    "bilevel": ([], []),
    "shared dropout": (["--set", "shared_dropout=true"], ["--set", "method.shared_dropout=true"]),
    "exact": (["--method", "exact"], ["--set", "method.solver=exact"]),
    "k-fold": (["--method", "k-fold"], ["--set", "method.validation=k-fold"]),
    "sgd": (["--method", "sgd"], ["--method", "sgd"]),
    "uniform": (["--method", "uniform"], ["--method", "uniform"]),
    "cross-validated": (["--method", "cross-validated"], ["--method", "cross-validated"]),
}
MOMENTUM = ["--method", "momentum"]


def begun_by_0_1(command: list[object], out: Path) -> Path:
    """Interrupt a run in its second epoch and leave its folder as version 0.1 would have."""
    process = Command(*COMMAND, *command, out=out, waits_after="epoch")
    process.wait_for("waiting")
    process.signal(signal.SIGINT)
    code, _, errors = process.end()
    assert code == 130, errors
    folder = only_folder(out)
    spec = from_plain(RunSpec, json.loads((folder / "spec.json").read_text()))
    plain = as_first_written(to_plain(spec))
    plain.pop("shared_dropout", None)
    (folder / "spec.json").write_text(json.dumps(plain))
    record = json.loads((folder / "record.json").read_text())
    name = record["name"].replace(spec.method.kind, plain["method"]["kind"])
    (folder / "record.json").write_text(json.dumps({**record, "spec": plain, "name": name}))
    checkpoints = Checkpoints(folder / "checkpoints")
    step, state = checkpoints.load_latest()
    method = {key: value for key, value in plain["method"].items() if key not in ("kind", "shared_dropout")}
    memory = state["method"]["memory"]
    if plain["method"]["kind"] == "bilevel":
        average = {"started": memory["started"], "gradients": memory["average"]} if memory else None
        method["validation_average"] = average
    checkpoints.save(step, {**state, "method": {"num_batches": state["method"]["num_batches"], **method}})
    return folder.rename(folder.with_name(f"{name}-{spec.id}"))


@pytest.mark.parametrize("name", METHODS)
def test_a_run_that_version_0_1_began_ends_with_the_same_bits(name, tmp_path):
    today, then = METHODS[name]
    folder = begun_by_0_1(today, tmp_path / "stopped")
    code, output, errors = run(*COMMAND, *then, out=tmp_path / "stopped")
    assert code == 0, errors
    assert "resuming at epoch" in output
    assert only_folder(tmp_path / "stopped") == folder
    assert same(outcome(folder), outcome(run_to_the_end(*COMMAND, *today, out=tmp_path / "unbroken")))


def test_an_average_that_version_0_1_kept_is_refused_and_left_alone(tmp_path):
    folder = begun_by_0_1(MOMENTUM, tmp_path)
    before = (folder / "record.json").read_bytes(), [path.name for path in (folder / "checkpoints").iterdir()]
    code, _, errors = run(*COMMAND, *MOMENTUM, out=tmp_path)
    assert code == 1
    assert "written by deepbilevel 0.1" in errors
    assert "finish the run with that version, or start again with --no-resume" in errors
    assert "Traceback" not in errors
    assert ((folder / "record.json").read_bytes(), [path.name for path in (folder / "checkpoints").iterdir()]) == before
    code, _, errors = run(*COMMAND, *MOMENTUM, "--no-resume", out=tmp_path)
    assert code == 0, errors
    assert folder.with_name(f"{folder.name}.old-1").is_dir()
