"""Checkpoints in processes that are killed while they save, and on disks that are full."""

import json
import os
import shutil
import subprocess
import sys

import pytest

CHILD = """
import errno, json, os, random, resource, signal, sys
from pathlib import Path
import torch
from deepbilevel_lab.replacement import remove_leftovers
from deepbilevel_lab.training.checkpoints import Checkpoints

torch.set_num_threads(1)

def state_of(step, size):
    return {"weights": torch.full((size,), step / 2), "bias": torch.full((size // 2,), step), "history": [step] * 100}

def is_whole(found, size):
    step, state = found
    wanted = state_of(step, size)
    tensors = all(torch.equal(state[name], wanted[name]) for name in ("weights", "bias"))
    return tensors and list(state) == list(wanted) and state["history"] == wanted["history"]

def refuse(path, reason):
    raise SystemExit(f"{path} is damaged: {reason}")

folder = Path(sys.argv[1])
"""

KILLS = """
checkpoints = Checkpoints(folder, on_damaged=refuse)
moments = random.Random(0)
last = 0
for _ in range(25):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)  # writing fails, and the child ends, should this process end first
        while True:
            last += 1
            checkpoints.save(last, state_of(last, 200_000))
            os.write(writing, last.to_bytes(8, "little"))
    os.close(writing)
    saved = os.read(reading, 8)
    for _ in range(moments.randrange(800)):
        os.listdir(folder)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while more := os.read(reading, 8):
        saved = more
    os.close(reading)
    saved = int.from_bytes(saved, "little")
    found = checkpoints.load_latest()
    assert found is not None and found[0] in (saved, saved + 1), (found and found[0], saved)
    assert is_whole(found, 200_000)
    last = found[0]
    remove_leftovers(folder)
    assert all(name.startswith("step-") for name in os.listdir(folder)), os.listdir(folder)
"""

FILLS = """
if len(sys.argv) == 3:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
checkpoints = Checkpoints(folder, keep=100, on_damaged=refuse)
for step in range(1, 30):
    try:
        checkpoints.save(step, state_of(step, 20_000 * step))
    except OSError as error:
        failure = error
        break
found = checkpoints.load_latest()
assert is_whole(found, 20_000 * found[0])
names = sorted(os.listdir(folder))
checkpoints.paths()[-1].unlink()
checkpoints.save(step, {"fits": True})
again = checkpoints.load_latest()
print(json.dumps([step, errno.errorcode[failure.errno], str(failure), found[0], names, again]))
"""


def run(code, *arguments, before=()):
    command = [*before, sys.executable, "-W", "error", "-c", CHILD + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_a_run_killed_at_any_moment_finds_its_last_checkpoint_whole(tmp_path):
    result = run(KILLS, tmp_path)
    assert result.returncode == 0, result.stderr


def own_disk(folder):
    """Return the words that start a command with a disk of one megabyte at ``folder``, which nobody else sees."""
    for private in ("-m", "-rm"):  # for root, and for anybody else
        words = ["unshare", private, "sh", "-c", 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$@"', str(folder)]
        if (
            shutil.which("unshare")
            and subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0
        ):
            return words
    return None


@pytest.mark.skipif(os.name != "posix", reason="limits are those of POSIX")
@pytest.mark.parametrize("limit", [pytest.param("disk", marks=pytest.mark.slow), "size of a file"])
def test_a_full_disk_costs_nothing_but_the_checkpoint_it_refused(tmp_path, limit):
    disk = own_disk(tmp_path) if limit == "disk" else []
    if disk is None:
        pytest.skip("no disk can be mounted here; the limit on the size of a file is tested")
    result = run(FILLS, tmp_path, *([] if disk else [500_000]), before=disk)
    assert result.returncode == 0, result.stderr
    step, number, message, last, names, again = json.loads(result.stdout)
    assert number == ("ENOSPC" if disk else "EFBIG")
    assert f"step-{step:08d}.safetensors could not be written because the disk is full" in message
    assert step > 2
    assert last == step - 1
    assert names == [f"step-{i:08d}.safetensors" for i in range(1, step)]
    assert again == [step, {"fits": True}]
