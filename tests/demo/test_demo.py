"""The demonstration as its user runs it: a real process, real files."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from deepbilevel_lab.demo.picture import draw_curves
from deepbilevel_lab.demo.summary import conclude, summarize
from deepbilevel_lab.demo.training import METHODS, Curve, Setting, train
from deepbilevel_lab.demo.trials import run_trials

COMMAND = [sys.executable, "-m", "deepbilevel", "demo"]


def test_the_command_trains_prints_a_table_and_writes_picture_and_numbers(tmp_path):
    out = tmp_path / "made" / "on demand"
    result = subprocess.run(
        [*COMMAND, "--seeds", "2", "--epochs", "2", "--out", out], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    for words in ("SGD", "uniform", "bilevel", "test, last", "test, best", "points", "test-accuracy.png"):
        assert words in result.stdout
    assert (out / "test-accuracy.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((out / "demo.json").read_text())
    assert {(c["method"], c["seed"]) for c in record["curves"]} == {(m, s) for m in METHODS for s in (0, 1)}
    assert all(len(c["test"]) == len(c["noisy_train"]) == 2 for c in record["curves"])


@pytest.mark.parametrize(("seeds", "epochs"), [(3, 5), (1, 1)])
def test_the_picture_has_a_line_and_a_band_for_every_method(seeds, epochs, tmp_path):
    curves = [Curve(m, seed, [50.0 + seed] * epochs) for m in METHODS for seed in range(seeds)]
    draw_curves(curves, Setting(epochs=epochs), tmp_path / "made" / "picture.svg")
    drawn = (tmp_path / "made" / "picture.svg").read_text()
    for name in ("SGD", "uniform weights (control)", "bilevel"):
        assert f'data-label="{name}"' in drawn
        assert f">{name}</text>" in drawn
    assert drawn.count(' range"') == 3
    assert f'data-y="{" ".join([f"{50 + (seeds - 1) / 2:g}"] * epochs)}"' in drawn
    assert "50% wrong labels: " + ("one seed" if seeds == 1 else "mean and range of 3 seeds") in drawn


def test_an_impossible_option_is_a_wrong_usage(tmp_path):
    result = subprocess.run(
        [*COMMAND, "--noise-rate", "1.5"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert result.returncode == 2
    assert "--noise-rate" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = subprocess.run([*COMMAND, "--out", tmp_path / "file"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "file" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.fixture
def endless():
    """Run a demonstration that would take hours, up to its first epoch, in a process group of its own."""
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
        while "1 of" not in process.stdout.readline():
            assert process.poll() is None
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_interrupting_ends_all_processes_with_130_and_writes_nothing(endless, tmp_path):
    process = endless(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)  # ends when no process is left that could still write
    assert process.returncode == 130, output
    assert "interrupted" in output
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_workers_end_when_the_parent_is_killed(endless, tmp_path):
    process = endless(tmp_path)
    process.kill()
    process.communicate(timeout=120)  # ends when no worker is left that could still write
    assert not list(tmp_path.iterdir())


def test_a_failing_run_is_reported_and_not_waited_for(tmp_path):
    with pytest.raises(ValueError, match="rate must lie between 0 and 1"):
        run_trials(Setting(noise_rate=2.0), [("sgd", 0), ("bilevel", 0)], jobs=1, on_epoch=lambda method: None)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_digits_from_clean_labels(method):
    epochs = []
    curve = train(method, 0, Setting(noise_rate=0.0, epochs=8), lambda: epochs.append(1))
    assert len(epochs) == len(curve.test) == 8
    # Guessing gives 10 %, give or take 1.4 for 450 images; a method that does not learn stays there.
    assert max(curve.test) > 40


@pytest.mark.parametrize("method", METHODS)
def test_a_run_repeats_bit_for_bit(method):
    first, second = (train(method, 3, Setting(epochs=2), lambda: None) for _ in range(2))
    assert (first.test, first.noisy_train) == (second.test, second.noisy_train)


def curves(**last):
    return [
        Curve(m, s, test=[90.0, last[m] + s], noisy_train=[50.0, 60.0], seconds=1.0) for m in METHODS for s in (0, 2)
    ]


def test_the_summary_gives_mean_and_spread_over_seeds():
    rows = summarize(curves(sgd=70.0, uniform=80.0, bilevel=85.0))
    assert str(rows["sgd"].test_last) == "71.0 ± 1.4"
    assert str(rows["bilevel"].test_best) == "90.0 ± 0.0"


def test_the_sentence_says_when_bilevel_loses_and_when_seeds_decide():
    wins = conclude(summarize(curves(sgd=70.0, uniform=84.5, bilevel=85.0)), 0.5)
    assert "15.0 points above SGD" in wins
    assert "0.5 points (no more than the spread over seeds) above the control" in wins
    assert "15.0 points below SGD" in conclude(summarize(curves(sgd=85.0, uniform=70.0, bilevel=70.0)), 0.5)
