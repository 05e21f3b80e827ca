"""The demonstration as its user runs it: a real process, real files."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from deepbilevel_lab.cli.demo import describe_result
from deepbilevel_lab.records import Cell, CellRun, MeanFigure, Row, RunRecord, SweepRecord
from deepbilevel_lab.report import draw_test_curves
from tests.cli.trained import run_in_process

COMMAND = [sys.executable, "-m", "deepbilevel", "demo"]
METHODS = ("sgd", "uniform", "bilevel", "cross-validated", "elr")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "made" / "on demand"
    result = subprocess.run(
        [*COMMAND, "--seeds", "2", "--epochs", "2", "--out", out], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return out, result.stdout


def test_the_command_trains_prints_a_table_and_writes_picture_and_record(ran):
    out, printed = ran
    for words in (*METHODS, "last", "best", "points", "sweep-demo.png", "10 of 10 runs"):
        assert words in printed
    assert (out / "sweep-demo.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((out / "sweep-demo.json").read_text())
    done = {(cell["row"], run["seed"]) for cell in record["cells"] for run in cell["runs"] if run["status"] == "done"}
    assert done == {(method, seed) for method in METHODS for seed in (0, 1)}


def test_the_command_it_prints_makes_the_same_runs(ran):
    out, printed = ran
    (command,) = re.findall("  deepbilevel (compare .*)", printed)
    listed = run_in_process(*shlex.split(command), "--dry-run").stdout
    assert set(re.findall(r": (\S+)\n", listed)) == {path.parent.name for path in out.glob("*/record.json")}


def test_once_more_nothing_is_trained_again(ran):
    out, _ = ran
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/record.json")}
    result = run_in_process("demo", "--seeds", "2", "--epochs", "2", "--out", out)
    assert result.exit_code == 0
    assert "points" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/record.json")} == before


def test_an_impossible_option_is_a_wrong_usage(tmp_path):
    result = subprocess.run([*COMMAND, "--seeds", "0"], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 2
    assert "--seeds" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = subprocess.run([*COMMAND, "--out", tmp_path / "file"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "file" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def endless():
    """Run a demonstration that would take hours, until it trains, in a process group of its own."""
    started = []

    def start(out):
        process = subprocess.Popen(
            [*COMMAND, "--epochs", "100000", "--out", out],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # A suite started in the background ignores Ctrl-C, and would hand that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        while not list(out.glob("*/spec.json")):
            assert process.poll() is None
            time.sleep(0.1)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_interrupting_saves_all_runs_and_ends_with_130(endless, tmp_path):
    process = endless(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)  # ends when no process is left that could still write
    assert process.returncode == 130, output
    assert "saved where they stood" in output
    assert "Traceback" not in output


@pytest.mark.slow
def test_runs_end_when_the_command_is_killed(endless, tmp_path):
    process = endless(tmp_path)
    process.kill()
    process.communicate(timeout=120)  # ends when no run is left that could still write


def compared(*last):
    def figures(test):
        return {"test": MeanFigure(test, 1.4), "best": MeanFigure(90.0, 0.0), "train": MeanFigure(60.0, 1.0)}

    cells = tuple(Cell(name, summary=figures(test)) for name, test in zip(METHODS, last, strict=True))
    return SweepRecord(kind="comparison", name="demo", title="Methods on digits", cells=cells)


def test_the_sentence_says_when_a_method_loses_and_when_seeds_decide():
    wins = describe_result(compared(70.0, 84.5, 85.0, 90.0, 95.0))
    assert "bilevel, is 15.0 points above SGD" in wins
    assert "0.5 points (no more than the standard deviation over seeds) above its control" in wins
    assert "our cross-validated gradient is 20.0 points above SGD" in wins
    assert "elr), an established method, 25.0 points above it" in wins
    assert "bilevel, is 15.0 points below SGD" in describe_result(compared(85.0, 70.0, 70.0, 70.0, 70.0))


def test_without_a_finished_run_of_each_method_there_is_no_sentence():
    record = compared(70.0, 80.0, 85.0, 90.0, 95.0)
    unfinished = SweepRecord(kind="comparison", name="d", title="", cells=(*record.cells[:4], Cell("elr")))
    assert describe_result(unfinished) is None


@pytest.mark.parametrize(("seeds", "epochs"), [(3, 5), (1, 1)])
def test_the_picture_has_a_line_and_a_band_for_every_method(seeds, epochs, tmp_path):
    names = ("sgd", "uniform", "bilevel")
    runs = [
        RunRecord(
            id=f"{name}-{seed}",
            name=name,
            status="done",
            error=None,
            spec={"seed": seed, "epochs": epochs},
            final=None,
            best=None,
            history=tuple(Row(epoch + 1, 0.1, 1.0, 0.0, test=50.0 + seed) for epoch in range(epochs)),
        )
        for name in names
        for seed in range(seeds)
    ]
    cells = tuple(
        Cell(name, runs=tuple(CellRun(seed, f"{name}-{seed}", "done", None, {}) for seed in range(seeds)))
        for name in names
    )
    record = SweepRecord(kind="comparison", name="demo", title="Methods on digits", cells=cells)
    assert draw_test_curves(record, runs, tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text()
    for name in names:
        assert f'data-label="{name}"' in drawn
        assert f">{name}</text>" in drawn
    assert drawn.count(' range"') == 3
    assert f'data-y="{" ".join([f"{50 + (seeds - 1) / 2:g}"] * epochs)}"' in drawn
    assert ("one seed" if seeds == 1 else "mean and range of 3 seeds") in drawn
    assert not draw_test_curves(record, [], tmp_path / "nothing.svg")
    assert not (tmp_path / "nothing.svg").exists()
