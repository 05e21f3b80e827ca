"""Ctrl-C and SIGTERM: a run saves where it stands, says so, ends with 130, and the same command goes on."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.data.layouts import write_jpeg
from tests.training.commands import DIGITS, Command, only_folder, outcome, run, run_to_the_end
from tests.training.test_packing import same

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

COMMAND = (*DIGITS, "--epochs", 3)


def status(folder: Path) -> str:
    return json.loads((folder / "record.json").read_text())["status"]


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "started"),
        (signal.SIGINT, "epoch"),
        pytest.param(signal.SIGINT, "started", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "epoch", marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_and_the_same_command_goes_on(tmp_path, number, moment):
    process = Command(*COMMAND, out=tmp_path / "stopped", waits_after=moment)
    process.wait_for("waiting")
    process.signal(number)
    code, _, errors = process.end()
    folder = only_folder(tmp_path / "stopped")
    assert code == 130
    assert "saved; rerun the same command to resume" in errors
    assert "Traceback" not in errors
    assert status(folder) == "interrupted"
    assert list((folder / "checkpoints").glob("step-*"))
    code, output, errors = run(*COMMAND, out=tmp_path / "stopped")
    assert code == 0, errors
    assert "resuming at epoch" in output
    assert same(outcome(folder), outcome(run_to_the_end(*COMMAND, out=tmp_path / "unbroken")))


def test_a_second_ctrl_c_does_not_wait_and_costs_only_what_was_not_saved(tmp_path):
    process = Command(*COMMAND, "--save-seconds", 0, out=tmp_path / "stopped", waits_after="epoch")
    process.wait_for("waiting")
    process.signal(signal.SIGINT)
    with suppress(ProcessLookupError):  # the first was enough
        for _ in range(19):
            os.kill(process.process.pid, signal.SIGINT)
    code, _, errors = process.end()
    assert code == 130
    assert "stopped at once; the last checkpoint counts" in errors or "saved; rerun the same command" in errors
    assert "Traceback" not in errors
    folder = run_to_the_end(*COMMAND, out=tmp_path / "stopped")
    assert same(outcome(folder), outcome(run_to_the_end(*COMMAND, out=tmp_path / "unbroken")))


@pytest.mark.slow
def test_a_run_with_workers_stops_for_a_signal_to_all_its_processes(tmp_path):
    for number in range(40):
        write_jpeg(tmp_path / "images" / "ab"[number % 2] / f"{number}.jpg")
    settings = ["--set", "group.num_batches=2", "--set", "group.batch_size=4", "--workers", "2", "--json"]
    network = ["--network", "cifarnet", "--epochs", "100000", "--threads", "1"]
    with start("--data", tmp_path / "images", *network, *settings, "--out", tmp_path / "out") as process:
        while '"epoch": 1' not in process.stdout.readline():
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()  # ends when no process is left that could still write
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert status(only_folder(tmp_path / "out")) == "interrupted"


def start(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "deepbilevel", "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A suite started in the background ignores Ctrl-C, and would hand that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.slow
def test_runs_side_by_side_all_stop_and_all_go_on(tmp_path):
    command = [*DIGITS, "--epochs", 2, "--seeds", "0-2", "--jobs", 2, "--out", tmp_path / "many"]
    with start(*command) as process:
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    with start(*command) as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    done = [event for event in map(json.loads, output.splitlines()) if event["event"] == "done"]
    assert sorted(event["seed"] for event in done) == [0, 1, 2]
    for event in done:
        alone = run_to_the_end(*DIGITS, "--epochs", 2, "--seed", event["seed"], out=tmp_path / f"{event['seed']}")
        assert same(outcome(Path(event["folder"])), outcome(alone))


@pytest.mark.parametrize("wrong", [("--nonsense",), ("--set", "nonsense=1"), ("--set", "optimizer.lr=much")])
def test_wrong_usage_leaves_nothing_behind(tmp_path, wrong):
    code, _, errors = run(*DIGITS, *wrong, out=tmp_path / "out")
    assert code == 2
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()
