"""What a node does with an order, and how often an order is given: no cluster is needed for either."""

import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from queue import Queue

import pytest

import deepbilevel_lab
from deepbilevel_lab.specs import canonical_json
from deepbilevel_lab.sweeps.on_ray import NUM_RETRIES, RayCluster, RayJob
from deepbilevel_lab.sweeps.remote_run import Order, RemoteRun
from deepbilevel_lab.sweeps.tied_command import End
from deepbilevel_lab.sweeps.trials import Trial
from deepbilevel_lab.training import RunFolder
from tests.cli.trained import make_spec

LOST = End("failed", "its process or node was lost", killed=True)


@pytest.fixture
def order(tmp_path):
    (tmp_path / "mark").touch()
    spec = make_spec(epochs=100_000, method="sgd", **{"data.limit": 64, "group.batch_size": 4})
    return Order(
        spec=canonical_json(spec),
        options=("--out", str(tmp_path), "--data-dir", str(tmp_path)),
        folder=str(RunFolder.of(spec, tmp_path).path),
        mark=str(tmp_path / "mark"),
        data_dir=str(tmp_path),
        version=deepbilevel_lab.__version__,
    )


def test_a_run_is_begun_heard_and_stopped(order):
    run, said = RemoteRun(), []
    run.begin(replace(order, again=True))
    while not said or not isinstance(said[-1], End):
        said += run.hear()
        if any(each.get("event") == "epoch" for each in said if isinstance(each, dict)):
            run.stop()
    assert said[-1] == End("interrupted")
    assert RunFolder(Path(order.folder)).read_record().status == "interrupted"
    assert any("saved; rerun the same command" in each.get("text", "") for each in said[:-1])


HOLDER = """
import sys
from deepbilevel_lab.sweeps.remote_run import Order, RemoteRun

run = RemoteRun()
run.begin(Order(**eval(sys.stdin.readline())))
while True:
    for each in run.hear():
        print(each.get("event") if isinstance(each, dict) else each, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waiting for others' processes needs Linux")
def test_a_run_saves_although_everything_around_its_holder_is_killed(order):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as holder:
        holder.stdin.write(f"{asdict(order)!r}\n")
        holder.stdin.flush()
        while holder.stdout.readline() != "epoch\n":
            assert holder.poll() is None
        trainer = os.pidfd_open(RunFolder(Path(order.folder)).read_record().process)
        os.killpg(holder.pid, signal.SIGKILL)  # as Ray does with the processes of a worker that is lost
        assert select.select([trainer], [], [], 300)[0]
        os.close(trainer)
    assert RunFolder(Path(order.folder)).read_record().status == "interrupted"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"mark": "/nowhere/mark"}, FileNotFoundError, r"does not see the folder of runs /nowhere; .* with --out"),
        ({"data_dir": "/nowhere"}, FileNotFoundError, r"does not see the data in /nowhere; .* with --data-dir"),
        ({"version": "0.0.1"}, ValueError, r"asks has 0\.0\.1; install the same version on every node"),
    ],
)
def test_a_node_refuses_what_would_be_lost_or_different_and_trains_nothing(order, change, error, message, tmp_path):
    with pytest.raises(error, match=message):
        RemoteRun().begin(replace(order, **change))
    assert [path.name for path in tmp_path.iterdir()] == ["mark"]


def test_data_that_stands_nowhere_is_not_looked_for(order):
    run = RemoteRun()
    run.begin(replace(order, data_dir=None))
    run.stop()
    assert run.hear()


class Scripted(RayJob):
    """A job whose processes fare as it is written."""

    def __init__(self, ends, tmp_path, stopped_after=None):
        self.news = Queue()
        super().__init__(RayCluster("127.0.0.1:1", tmp_path, tmp_path), Trial("a", make_spec()), self.news)
        self.ends, self.again, self.stopped_after = iter(ends), [], stopped_after

    def _attempt(self, *, again):
        self.again.append(again)
        if len(self.again) == self.stopped_after:
            self.kill()
        return next(self.ends)

    def heard(self):
        self._follow()
        said = [self.news.get() for _ in range(self.news.qsize())]
        return [each.event["number"] for each in said[:-1]], (said[-1].ending, said[-1].error)


@pytest.mark.parametrize(
    ("ends", "retries", "ending"),
    [
        ([LOST, End("done")], [1], ("done", None)),
        ([LOST, End("interrupted"), End("failed", "it diverged")], [1, 2], ("failed", "it diverged")),
        ([LOST] * (NUM_RETRIES + 1), [1, 2, 3], ("failed", f"{LOST.error} (after 3 retries)")),
        ([End("failed", "it diverged")], [], ("failed", "it diverged")),
    ],
)
def test_what_is_lost_is_tried_again_a_few_times_and_what_fails_by_itself_is_not(ends, retries, ending, tmp_path):
    job = Scripted(ends, tmp_path)
    assert job.heard() == (retries, ending)
    assert job.again == [False] + [True] * len(retries)


@pytest.mark.parametrize("end", [LOST, End("interrupted")])
def test_what_was_asked_to_end_is_not_tried_again(end, tmp_path):
    assert Scripted([LOST, end], tmp_path, stopped_after=2).heard() == ([1], ("interrupted", None))
