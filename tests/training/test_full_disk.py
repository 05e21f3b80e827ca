"""A run on a disk that is full says so, keeps its last good checkpoint, and goes on when there is room again."""

import os
import shutil
import subprocess
import sys

import pytest

from deepbilevel_lab.training.checkpoints import Checkpoints
from tests.training.commands import DIGITS, only_folder, outcome, run_to_the_end
from tests.training.test_packing import same

COMMAND = [*DIGITS, "--epochs", "2"]
# Imports once and forks a process per command. The disk lives as long as this process.
PROGRAM = """
import os, resource, shutil, subprocess, sys
from pathlib import Path
import deepbilevel_lab.training.run
from deepbilevel_lab.cli import main

disk, results, kind, *arguments = sys.argv[1:]
disk, results, filler = Path(disk), Path(results), Path(disk) / "filler"

def train(limit=None):
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.argv = ["deepbilevel", "train", *arguments, "--save-seconds", "0", "--out", str(disk / "out")]
    main()

def fill(spare):
    filler.unlink(missing_ok=True)
    free = shutil.disk_usage(disk).free
    with filler.open("wb") as file:
        file.write(bytes(max(free - spare, 0)))

def report(name, code):
    print(name, code, flush=True)
    print("===", file=sys.stderr, flush=True)
    shutil.copytree(disk / "out", results / name, dirs_exist_ok=True)

if kind == "disk":
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", disk], check=True)
    fill(1_600_000)  # a network and its momentum take about 600 kB; three checkpoints are needed at a time
    report("first", train())
    for spare in (0, 8_192, 300_000):
        fill(spare)
        report(f"again-{spare}", train())
    filler.unlink()
else:
    report("first", train(500_000))
report("end", train())
"""


def can_mount() -> bool:
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return False
    return (
        subprocess.run([*PRIVATE, "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True).returncode
        == 0
    )


PRIVATE = ["unshare", "-m"] if hasattr(os, "geteuid") and os.geteuid() == 0 else ["unshare", "-rm"]


def on_a_small_disk(tmp_path, kind):
    """Run the program, and return exit codes by name and messages in their order."""
    disk, results = tmp_path / "disk", tmp_path / "results"
    disk.mkdir()
    results.mkdir()
    command = [sys.executable, "-c", PROGRAM, disk, results, kind, *COMMAND]
    done = subprocess.run(
        [*PRIVATE, *command] if kind == "disk" else command, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    codes = dict(line.split() for line in done.stdout.splitlines() if not line.startswith("{"))
    return codes, done.stderr.split("===")[:-1]


@pytest.mark.slow  # one checkpoint on a full disk: test_checkpoints_under_fire.py
@pytest.mark.skipif(os.name != "posix", reason="disks are those of POSIX")
def test_a_full_disk_is_said_and_with_room_the_run_goes_on(tmp_path):
    kind = "disk" if can_mount() else "limit"  # of a file's size; not every machine lets us mount
    codes, messages = on_a_small_disk(tmp_path, kind)
    assert codes.pop("end") == "0", messages
    *failed, last = messages
    assert last.strip() == ""
    assert set(codes.values()) == {"1"}
    for name, message in zip(codes, failed, strict=True):
        assert "disk is full" in message, f"{name}: {message}"
        assert "Free some space and run the same command again" in message
        assert "Traceback" not in message
    if kind == "disk":
        steps = []
        for name in codes:
            checkpoints = Checkpoints(only_folder(tmp_path / "results" / name) / "checkpoints", on_damaged=damaged)
            steps.append(checkpoints.load_latest()[0])
        assert steps == sorted(steps)
        assert steps[0] >= 1
    unbroken = run_to_the_end(*COMMAND, out=tmp_path / "unbroken")
    assert same(outcome(only_folder(tmp_path / "results" / "end")), outcome(unbroken))


def damaged(path, reason):
    raise AssertionError(f"{path} is damaged: {reason}")
