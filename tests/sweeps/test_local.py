"""Runs as processes: they answer, they fail with a reason, and they end with whoever started them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from queue import Queue

import pytest

from deepbilevel_lab.specs import canonical_json
from deepbilevel_lab.sweeps.local import LocalProcesses
from deepbilevel_lab.sweeps.trials import Trial
from deepbilevel_lab.training import RunFolder
from deepbilevel_lab.training.interruption import Interruption
from tests.cli.trained import make_spec


def endless(**settings):
    return make_spec(epochs=100_000, **{"method": "sgd", "data.limit": 64, "group.batch_size": 4, **settings})


def news_until_the_end(news):
    while True:
        heard = news.get(timeout=300)
        yield heard
        if heard.ending is not None:
            return


def test_a_process_that_is_asked_to_stop_saves_and_ends(tmp_path):
    place, news, trial = LocalProcesses(tmp_path, tmp_path), Queue(), Trial("a", endless())
    job = place.start(trial, news)
    heard = []
    for each in news_until_the_end(news):
        heard.append(each)
        if each.event.get("event") == "epoch":
            job.stop()
    assert heard[-1].ending == "interrupted"
    assert any("saved; rerun the same command" in each.event.get("text", "") for each in heard)
    assert RunFolder.of(trial.spec, tmp_path).read_record().status == "interrupted"
    assert place.find_record(trial.spec).status == "interrupted"
    assert place.find_finished(trial.spec, network=True) is None


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="signals of a process are listed by Linux")
def test_a_ctrl_c_while_a_run_starts_is_heard_here_and_not_there(tmp_path, monkeypatch):
    popen, started = subprocess.Popen, []

    def interrupted_popen(*arguments, **settings):
        os.kill(os.getpid(), signal.SIGINT)  # comes while this process starts another one
        started.append(popen(*arguments, **settings))
        os.kill(started[0].pid, signal.SIGINT)  # reaches the other one, too, as from a terminal
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", interrupted_popen)
    news, trial = Queue(), Trial("a", endless())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background ignores Ctrl-C
    try:
        with Interruption() as interruption:
            job = LocalProcesses(tmp_path, tmp_path).start(trial, news)
            assert interruption.requested
    finally:
        signal.signal(signal.SIGINT, before)
    ignored = None
    for each in news_until_the_end(news):
        if each.event.get("event") == "epoch":
            status = Path(f"/proc/{started[0].pid}/status").read_text()
            ignored = int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16) >> (signal.SIGINT - 1) & 1
            job.stop()
    assert ignored == 1
    assert each.ending == "interrupted"  # by its input, and not by the signal


def test_a_run_ends_when_its_input_ends_whoever_held_it(tmp_path):
    """The pipe alone does it: no signal is sent, and what the run prints is still read."""
    command = [sys.executable, "-m", "deepbilevel", "train", "--spec", "-", "--tied", "--json", "--out", tmp_path]
    process = subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdin.write(canonical_json(endless()) + "\n")
    process.stdin.flush()
    while json.loads(process.stdout.readline())["event"] != "epoch":
        assert process.poll() is None
    try:
        _, errors = process.communicate(timeout=300)  # closes the input
    finally:
        process.kill()  # a run that would go on for ever must not outlive a failing test
    assert process.returncode == 130, errors
    assert "saved; rerun the same command" in errors


@pytest.mark.parametrize("problem", [pytest.param("diverges", marks=pytest.mark.slow), "in the way"])
def test_a_failure_has_its_reason(tmp_path, problem):
    spec = endless(**{"optimizer.lr": 1e30}) if problem == "diverges" else endless()
    if problem == "in the way":
        RunFolder.of(spec, tmp_path).path.write_text("a file where the folder should be")
    news = Queue()
    LocalProcesses(tmp_path, tmp_path).start(Trial("a", spec), news)
    *_, last = news_until_the_end(news)
    assert last.ending == "failed"
    assert ("smaller optimizer.lr" if problem == "diverges" else str(tmp_path)) in last.error


def test_a_kill_is_a_failure_that_says_which(tmp_path):
    news, trial = Queue(), Trial("a", endless())
    job = LocalProcesses(tmp_path, tmp_path).start(trial, news)
    job.kill()
    *_, last = news_until_the_end(news)
    assert (last.ending, last.error) == ("failed", f"its process ended with code {-signal.SIGKILL} and said nothing")
    assert last.killed


PRINTED = [
    *(b"123", b"null", b'"done"', b"[1]", b'{"made": "a network"}', b"[" * 100_000, b"\xff no UTF-8"),
    *(b'{"event": 3}', b'{"event": "x"}', b'{"event": "retry"}', b'{"event": "message"}', b'{"event": "epoch"}'),
    *(b'{"event": "progress", "epoch": "1", "share": 0.5}', b'{"event": "done", "folder": "x", "final": 1, "best": 2}'),
]


def test_what_the_users_code_prints_is_a_message_whatever_it_looks_like(tmp_path, monkeypatch):
    program = tmp_path / "python"  # prints it in place of the command
    printed = b"\n".join([*PRINTED, b'{"event": "started", "epoch": 0}'])
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.buffer.write({printed!r})\n")
    program.chmod(0o700)
    news = Queue()
    monkeypatch.setattr(sys, "executable", str(program))
    LocalProcesses(tmp_path, tmp_path).start(Trial("a", endless()), news)
    *said, last = news_until_the_end(news)
    texts = [line.decode(errors="replace") for line in PRINTED]
    messages = [{"event": "message", "text": text} for text in texts]
    assert [each.event for each in said] == [*messages, {"event": "started", "epoch": 0}]
    assert last.ending == "done"


def test_a_file_where_the_folder_should_be_is_not_a_finished_run(tmp_path):
    place, spec = LocalProcesses(tmp_path, tmp_path), endless()
    RunFolder.of(spec, tmp_path).path.write_text("in the way")
    assert place.find_finished(spec, network=True) is None
    assert place.find_record(spec) is None


def test_a_damaged_record_is_not_a_finished_run(tmp_path):
    place, spec = LocalProcesses(tmp_path, tmp_path), endless()
    folder = RunFolder.of(spec, tmp_path)
    folder.path.mkdir()
    folder.record_file.write_text("{")
    assert place.find_finished(spec, network=True) is None
    assert place.find_record(spec) is None
