"""Sweeps on a real Ray cluster: what is killed goes on, results are those of this machine, and nothing is left over."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest

from deepbilevel_lab.sweeps import on_ray
from deepbilevel_lab.training import RunFolder, find_runs
from tests.cli.test_compare_command import read_comparison, start, statuses
from tests.cli.trained import run_command, run_in_process
from tests.sweeps.ray_cluster import started_cluster
from tests.training.commands import outcome

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'deepbilevel[ray]'"),
    pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for others' processes needs Linux"),
]
DIVERGING = "sgd[optimizer.lr=1e30]"
BASE = [
    *("--data", "digits", "--noise", "uniform:0.5", "--limit", "512", "--threads", "1", "--seeds", "0"),
    *("--set", "data.test_limit=50", "--set", "group.num_batches=4", "--set", "group.batch_size=4"),
]
SWEEP = [*BASE, "--epochs", "15", "--methods", f"sgd,uniform,{DIVERGING}"]
ENDLESS = [*BASE, "--epochs", "100000", "--methods", "sgd,uniform,bilevel"]


# A cluster takes ten seconds to start and its workers as long; what a run on a node does by itself is quickly tested
# in test_remote_run.py.
on_a_cluster = pytest.mark.slow


@pytest.fixture(scope="module")
def address():
    with started_cluster() as address:
        yield address


def listen(process):
    """Yield all events; a line that is none, such as Ray's, is an error."""
    for line in process.stdout:
        yield json.loads(line)


def trainer_of(folder):
    """Return the process that trains there, and the one that holds it."""
    pid = RunFolder(Path(folder)).read_record().process
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return pid, int(status["PPid"])


def wait_for_end(handle):
    assert select.select([handle], [], [], 300)[0]
    os.close(handle)


@pytest.fixture(scope="module")
def history(address, tmp_path_factory):
    """Return what was seen of a sweep in which one run lost its worker, and one was killed itself."""
    out = tmp_path_factory.mktemp("on-ray")
    events, folders, killed = [], {}, {}
    with start(*SWEEP, "--out", out, "--on", f"ray:{address}") as process:
        for event in listen(process):
            events.append(event)
            if event["event"] == "started":
                folders[event["row"]] = event["folder"]
            if event["event"] == "epoch" and event["row"] not in killed:
                folder = Path(folders[event["row"]])
                assert list((folder / "checkpoints").iterdir())
                trainer, worker = trainer_of(folder)
                victim = trainer if killed else worker
                killed[event["row"]] = (trainer, os.pidfd_open(trainer))
                os.kill(victim, signal.SIGKILL)
        errors = process.stderr.read()
    return {"out": out, "events": events, "errors": errors, "killed": killed, "code": process.returncode}


@pytest.fixture(scope="module")
def on_this_machine(tmp_path_factory):
    out = tmp_path_factory.mktemp("local")
    done = run_command("compare", *SWEEP, "--out", out, "--jobs", "2", "--quiet")
    assert done.returncode == 1, done.stderr  # the diverging one
    return out


def of(history, kind):
    return [event for event in history["events"] if event["event"] == kind]


@on_a_cluster
def test_runs_whose_worker_or_process_is_killed_are_tried_again_and_it_is_told(history):
    assert sorted(history["killed"]) == ["sgd", "uniform"], history["errors"]
    assert sorted((event["row"], event["number"]) for event in of(history, "retry")) == [("sgd", 1), ("uniform", 1)]
    texts = " ".join(event["text"] for event in of(history, "retry"))
    assert "its process or node was lost; resuming from its checkpoint, retry 1 of 3" in texts
    assert f"its process ended with code {-signal.SIGKILL}" in texts
    assert "note: 2 of 3 runs lost their process and went on from a checkpoint: " in history["errors"]


@on_a_cluster
def test_they_go_on_from_their_checkpoint(history):
    for row in ("sgd", "uniform"):
        begun = [event["epoch"] for event in of(history, "started") if event["row"] == row]
        assert begun[0] == 0
        assert begun[1] > 0
        epochs = [event["epoch"] for event in of(history, "epoch") if event["row"] == row]
        # A worker that is killed right after a checkpoint takes with it what it had just said of that epoch.
        assert set(range(1, 16)) - set(epochs) <= {begun[1]}


@on_a_cluster
def test_a_run_that_fails_by_itself_is_not_tried_again(history):
    assert history["code"] == 1
    [failure] = of(history, "failed")
    assert failure["row"] == DIVERGING
    assert "smaller optimizer.lr" in failure["error"]


@on_a_cluster
def test_results_are_those_of_this_machine_bit_for_bit(history, on_this_machine):
    assert statuses(read_comparison(history["out"])) == {"sgd": ["done"], "uniform": ["done"], DIVERGING: ["failed"]}
    ours, theirs = find_runs(history["out"]), find_runs(on_this_machine)
    assert [run.path.name for run in ours] == [run.path.name for run in theirs]
    done = [(mine.path, other.path) for mine, other in zip(ours, theirs, strict=True) if mine.finished()]
    assert len(done) == 2
    for mine, other in done:
        assert outcome(mine)["model"] == outcome(other)["model"]
        assert outcome(mine)["results"] == outcome(other)["results"]
        assert outcome(mine)["steps"] == outcome(other)["steps"]


@on_a_cluster
def test_nothing_is_left_of_it(history):
    for _, handle in history["killed"].values():
        wait_for_end(handle)
    assert not any(run.in_use() for run in find_runs(history["out"]))
    assert list(history["out"].glob(".seen-by*")) == []


@on_a_cluster
def test_a_killed_or_interrupted_command_leaves_no_run_behind(address, tmp_path):
    """Two nodes with one CPU each: the third run never has room, and is never called running."""
    with start(*ENDLESS, "--out", tmp_path, "--on", f"ray:{address}") as process:
        first = next(event for event in listen(process) if event["event"] == "started")
        trainer = os.pidfd_open(trainer_of(first["folder"])[0])
        process.kill()
        wait_for_end(trainer)
    assert RunFolder(Path(first["folder"])).read_record().status == "interrupted"  # it saved before it went
    running = [status for [status] in statuses(read_comparison(tmp_path)).values()]
    assert sorted(running) in (["missing", "missing", "running"], ["missing", "running", "running"])
    trained = set()
    with start(*ENDLESS, "--out", tmp_path, "--on", f"ray:{address}") as process:
        for event in listen(process):
            trained |= {event["row"]} if event["event"] == "epoch" else set()
            if len(trained) == 2:
                break
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "3 of 3 runs are not finished" in errors
    assert "Traceback" not in errors
    record = read_comparison(tmp_path)
    assert {row for row, status in statuses(record).items() if status == ["interrupted"]} == trained
    assert sorted(status for [status] in statuses(record).values()) == ["interrupted", "interrupted", "missing"]
    for run in find_runs(tmp_path):
        assert run.in_use() is False
    assert list(tmp_path.glob(".seen-by*")) == []  # that of the killed command neither


@on_a_cluster
def test_a_run_that_no_node_can_hold_is_not_waited_for_in_silence(address, tmp_path):
    with start(*ENDLESS, "--threads", "2", "--out", tmp_path, "--on", f"ray:{address}") as process:
        assert "no node of the cluster has the 2 CPUs and 0 GPUs of a run; use fewer --threads" in next(process.stderr)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert "2 CPUs" not in errors  # once is enough
    assert statuses(read_comparison(tmp_path)) == {"sgd": ["missing"], "uniform": ["missing"], "bilevel": ["missing"]}


@on_a_cluster
def test_without_an_address_a_cluster_is_started_and_ended_and_the_home_stays_as_it_was(tmp_path):
    """Of an experiment here: the other command that knows the place."""
    home = tmp_path / "home"
    home.mkdir()
    names = ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    chosen = ["clothing1m", "--scale", "smoke", "--row", "sgd", "--column", "noisy"]
    done = subprocess.run(
        [sys.executable, "-m", "deepbilevel", "reproduce", *chosen, "--json", "--on", "ray"],
        env={**{name: value for name, value in os.environ.items() if name not in names}, "HOME": str(home)},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert events[-2:] == ["done", "reproduced"]
    assert not (home / ".ray").exists()


@pytest.mark.parametrize("address", [None, "127.0.0.1:1"], ids=["a cluster of its own", "nobody answers"])
def test_the_environment_stays_as_it_was(address, tmp_path, monkeypatch):
    """Or later processes inherit it; a program of Ray Train then finds no cluster."""

    class Ray:
        seen: dict[str, str]

        def init(self, **_):
            Ray.seen = dict(os.environ)
            if address is not None:
                raise RuntimeError("nobody is there")

        def shutdown(self):
            pass

    monkeypatch.setattr(on_ray, "_import_ray", Ray)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ENABLE_AUTO_CONNECT"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    with suppress(ConnectionError), on_ray.RayCluster(address, tmp_path, tmp_path):
        pass
    assert dict(os.environ) == before
    assert Ray.seen["RAY_ENABLE_AUTO_CONNECT"] == "0"
    assert Ray.seen["RAY_USAGE_STATS_ENABLED"] == "1"
    assert ("RAY_AUTH_TOKEN" in Ray.seen) == (address is None)


@pytest.mark.parametrize("command", [["compare", "--data", "digits"], ["reproduce", "table1", "--scale", "smoke"]])
def test_without_ray_the_remedy_is_named(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    done = run_in_process(*command, "--on", "ray", "--out", tmp_path)
    assert done.exit_code == 1
    assert done.stderr == "error: --on ray needs Ray; run: pip install 'deepbilevel[ray]'\n"


@contextmanager
def other_server():
    """Yield the address of something that is not Ray."""
    # Not of 127.0.0.1 alone: Ray goes to another address of this machine instead.
    with HTTPServer(("", 0), BaseHTTPRequestHandler) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseHTTPRequestHandler, "log_message", lambda *_: None)
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@on_a_cluster
@pytest.mark.parametrize("wrong", [nullcontext("127.0.0.1:1"), nullcontext("somewhere"), other_server()])
def test_a_wrong_address_is_an_error_and_not_a_wait(wrong, tmp_path):
    begin = time.monotonic()
    with wrong as address:
        done = run_command("compare", "--data", "digits", "--on", f"ray:{address}", "--out", tmp_path / "runs")
    assert time.monotonic() - begin < 600  # one try of 41 seconds; left to itself, Ray tries for 14 minutes
    assert done.returncode == 1
    *lines_of_ray, error = done.stderr.splitlines()
    assert error.startswith(f"error: no Ray cluster answers at {address} (")
    assert "`ray start --head` prints the address" in error
    assert all(line.startswith("[20") and " W " in line for line in lines_of_ray)  # warnings, while it tries
    assert list(tmp_path.iterdir()) == []
