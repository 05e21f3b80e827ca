"""The command under torchrun: who speaks, what is refused, and what becomes of processes that are stopped or killed."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from deepbilevel_lab.processes import Launch
from tests.training.commands import DIGITS, Command, only_folder, outcome
from tests.training.test_packing import same

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")

EPOCHS = ("--epochs", 6)
SMALL = (*DIGITS, "--limit", 200, "--set", "group.num_batches=5", "--set", "group.batch_size=4")
PATIENCE = timedelta(seconds=120)
LONG = (*SMALL, "--epochs", 100_000)


class Ranks:
    """The command in several processes, as torchrun would start them."""

    def __init__(self, *arguments, out, size=2, store=None, command="train", waits_after=None):
        self.store = store or TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
        }
        own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        self.commands = [
            Command(*arguments, out=out, environment={**shared, **each}, command=command, waits_after=waits_after)
            for each in own
        ]

    def end(self):
        """Return the exit codes, what was said, and what was said on the streams of errors."""
        codes, outputs, errors = zip(*(command.end() for command in self.commands), strict=True)
        return list(codes), list(outputs), list(errors)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Return the folder of a run of two processes that nobody disturbs."""
    out = tmp_path_factory.mktemp("unbroken")
    codes, outputs, errors = Ranks(*SMALL, *EPOCHS, out=out).end()
    assert (codes, errors) == ([0, 0], ["", ""])
    assert [json.loads(line)["event"] for line in outputs[0].splitlines()] == ["started", *["epoch"] * 6, "done"]
    assert outputs[1] == ""
    return only_folder(out)


@pytest.mark.slow
def test_a_rank_that_hangs_ends_in_a_message_that_says_what_to_do(tmp_path):
    ranks = Ranks(*LONG, "--timeout", 8, out=tmp_path)
    first, second = ranks.commands
    first.wait_for("epoch")
    second.signal(signal.SIGSTOP)
    code, _, errors = first.end()
    second.signal(signal.SIGKILL)
    second.end()
    assert code == 1
    assert errors.startswith("error: another process of this run has not answered within the time-out")
    assert "--timeout" in errors
    assert "Rerun the same command to resume from the last checkpoint" in errors
    assert len(errors.splitlines()) == 1
    record = json.loads((only_folder(tmp_path) / "record.json").read_text())
    assert record["status"] == "failed"
    assert record["error"].startswith("LostProcessError: another process")


def test_a_rank_that_is_killed_is_missed_at_once_and_what_it_left_does_no_harm(tmp_path):
    ranks = Ranks(*LONG, out=tmp_path)
    first, second = ranks.commands
    first.wait_for("epoch")
    second.signal(signal.SIGKILL)
    code, _, errors = first.end()
    second.end()
    assert code == 1
    assert errors.startswith("error: another process of this run is gone; look for its own message")
    assert len(errors.splitlines()) == 1
    again = Ranks(
        *LONG, out=tmp_path, store=ranks.store
    )  # torchrun keeps its store, and in it the addresses of the dead
    assert "resuming at epoch" in again.commands[0].wait_for("message")["text"]
    again.commands[0].signal(signal.SIGTERM)
    assert again.end()[0] == [130, 130]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_to_one_rank_stops_all_and_saves_once(tmp_path, number):
    ranks = Ranks(*LONG, out=tmp_path)
    ranks.commands[0].wait_for("epoch")
    ranks.commands[1].signal(number)
    ranks.commands[1].signal(number)  # torchrun passes on what a process may have got from the terminal already
    codes, outputs, errors = ranks.end()
    assert codes == [130, 130]
    assert re.fullmatch(r"stopped at epoch \d+, saved; rerun the same command to resume\n", errors[0])
    assert (outputs[1], errors[1]) == ("", "")
    assert json.loads((only_folder(tmp_path) / "record.json").read_text())["status"] == "interrupted"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--method", "sgd"), "error: method sgd takes the group as one batch"),
        (("--seeds", "0-1"), "error: --seeds 0-1 starts a process for each run"),
    ],
)
def test_what_cannot_be_spread_is_refused_once_before_anything_is_written(tmp_path, wrong, said):
    codes, outputs, errors = Ranks(*SMALL, *wrong, out=tmp_path / "out").end()
    assert codes == [2, 2]
    assert errors[0].startswith(said)
    assert (outputs, errors[1]) == (["", ""], "")
    assert not (tmp_path / "out").exists()


def test_the_place_of_a_process_is_read_from_its_environment(monkeypatch):
    assert Launch.find() == Launch()
    for name, value in {"RANK": 3, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "LOCAL_WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert Launch.find() == Launch(rank=3, size=4, local_rank=1, local_size=2)


# The second of the processes that torchrun starts first kills itself in the second epoch: the first has saved by then.
DYING = """
import os
import runpy
import signal

from deepbilevel_lab.training.run import Listener


def die(self, progress, loop):
    if progress.epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)


if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", "0"):
    Listener.progress = die
runpy.run_module("deepbilevel", run_name="__main__")
"""


@pytest.mark.slow
def test_torchrun_starts_a_killed_job_again_and_it_ends_as_an_unbroken_one(tmp_path, unbroken):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    # Only what is started for the first time is to begin anew.
    command = ["train", *SMALL, *EPOCHS, "--save-seconds", 0, "--no-resume", "--out", tmp_path / "runs"]
    program = tmp_path / "dying.py"
    program.write_text(DYING)
    line = [sys.executable, *launcher, program, *map(str, command)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "resuming at epoch 2" in done.stdout
    folder = only_folder(tmp_path / "runs")
    assert same(outcome(folder), outcome(unbroken))
