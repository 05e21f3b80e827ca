"""Whoever watches a run may be killed, close the pipe or lose the terminal: the runs save, and say that they did."""

import json
import os
import select
import signal
import subprocess
import sys

import pytest

from deepbilevel_lab.training import find_runs
from tests.cli.trained import write_colours

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for others' processes needs Linux")
DIGITS = [
    *("--data", "digits", "--noise", "uniform:0.5", "--limit", "64", "--threads", "1", "--epochs", "100000"),
    *("--set", "data.test_limit=20", "--set", "group.num_batches=4", "--set", "group.batch_size=4"),
]
COMPARE = ["compare", *DIGITS, "--seeds", "0-1", "--jobs", "2", "--methods", "sgd", "--json"]
TRAIN = ["train", *DIGITS, "--json"]


def start(*arguments):
    """Start a command in a session of its own, as a terminal does; an epoch of its runs takes milliseconds."""
    return subprocess.Popen(
        [sys.executable, "-m", "deepbilevel", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # a suite under nohup would hand that on
    )


def kill(process):
    process.kill()


def close_pipe(process):
    process.stdout.close()


def hang_up(process):
    os.killpg(process.pid, signal.SIGHUP)


def wait_for_epochs(process, seeds):
    waiting = set(seeds)
    while waiting:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        event = json.loads(line)
        waiting -= {event.get("seed")} if event["event"] == "epoch" else set()


@pytest.mark.parametrize("end", [kill, close_pipe, hang_up])
def test_the_runs_of_a_sweep_save(end, tmp_path):
    with start(*COMPARE, "--out", tmp_path) as process:
        wait_for_epochs(process, [0, 1])
        handles = [os.pidfd_open(run.read_record().process) for run in find_runs(tmp_path)]
        end(process)
        for handle in handles:
            assert select.select([handle], [], [], 120)[0]
            os.close(handle)
        process.wait()
        errors = process.stderr.read()
    assert "Traceback" not in errors
    assert [run.read_record().status for run in find_runs(tmp_path)] == ["interrupted", "interrupted"]
    assert process.returncode == (-signal.SIGKILL if end is kill else 130), errors
    if end is not kill:
        [record] = tmp_path.glob("sweep-*.json")
        [cell] = json.loads(record.read_text())["cells"]
        assert [run["status"] for run in cell["runs"]] == ["interrupted", "interrupted"]


@pytest.mark.parametrize("end", [close_pipe, hang_up])
def test_a_single_run_saves(end, tmp_path):
    with start(*TRAIN, "--out", tmp_path) as process:
        while json.loads(process.stdout.readline())["event"] != "epoch":
            assert process.poll() is None
        end(process)
        process.wait()
        errors = process.stderr.read()
    assert process.returncode == 130
    assert errors.startswith("stopped at epoch")
    assert errors.endswith("saved; rerun the same command to resume\n")
    [run] = find_runs(tmp_path)
    assert run.read_record().status == "interrupted"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["audit", "recommend"])
def test_other_commands_save_when_the_terminal_closes(command, tmp_path):
    pictures, out = write_colours(tmp_path / "pictures"), tmp_path / "out"
    place = [pictures] if command == "audit" else ["--data", pictures, "--budget", "1h", "--json"]
    settings = ["--set", "group.num_batches=2", "--set", "group.batch_size=4", "--epochs", "100000", "--threads", "1"]
    with start(command, *place, *settings, "--out", out) as process:
        while '"event": "epoch"' not in (line := process.stdout.readline()) and not line.startswith("epoch "):
            assert process.poll() is None
        hang_up(process)
        process.stdout.read()
        process.wait()
        errors = process.stderr.read()
    assert process.returncode == 130, errors
    assert "saved" in errors
    assert "Traceback" not in errors
    runs = find_runs(out / "runs" if command == "audit" else out)
    assert {run.read_record().status for run in runs} <= {"interrupted", "done"}  # one at its end rather ends
    assert len(runs) == 1
    assert not any(run.in_use() for run in runs)


def test_a_run_under_nohup_goes_on(tmp_path):
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from deepbilevel_lab.cli import main; main()"
    finite = [*TRAIN[:-1], "--epochs", "50", "--json", "--out", str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", code, *finite], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while json.loads(process.stdout.readline())["event"] != "started":
            assert process.poll() is None
        hang_up(process)
        process.communicate()
    assert process.returncode == 0


def test_two_sweeps_at_once_share_their_runs(tmp_path):
    command = [*COMPARE[:-1], "--epochs", "400", "--json", "--out", tmp_path]
    with start(*command) as first:
        wait_for_epochs(first, [0, 1])
        with start(*command) as second:
            outputs = [process.communicate() for process in (first, second)]
    for process, (output, errors) in zip((first, second), outputs, strict=True):
        assert process.returncode == 0, errors
        assert output.count('"event": "done"') == 2
    assert "waiting for another process, which trains in" in outputs[1][0]
    [record] = tmp_path.glob("sweep-*.json")
    [cell] = json.loads(record.read_text())["cells"]
    assert [run["status"] for run in cell["runs"]] == ["done", "done"]


def test_a_sweep_that_waits_can_be_stopped(tmp_path):
    with start(*COMPARE, "--out", tmp_path) as first:
        wait_for_epochs(first, [0, 1])
        with start(*COMPARE, "--out", tmp_path) as second:
            while "waiting for another process" not in second.stdout.readline():
                assert second.poll() is None
            second.send_signal(signal.SIGTERM)
            _, errors = second.communicate()
        assert second.returncode == 130, errors
        assert first.poll() is None
        first.send_signal(signal.SIGTERM)
        first.communicate()
    assert [run.read_record().status for run in find_runs(tmp_path)] == ["interrupted", "interrupted"]


def test_a_run_that_was_killed_after_its_last_epoch_says_so(tmp_path):
    command = [*TRAIN[:-1], "--epochs", "2", "--json", "--out", tmp_path]
    with start(*command) as process:
        process.communicate()
    [run] = find_runs(tmp_path)
    run.model_file.unlink()  # as if it had been killed before
    with start(*command) as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "resuming after the last epoch, step" in output
