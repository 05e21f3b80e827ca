"""A log that cannot be written, no memory, no locks, no inodes: a run goes on, or ends with one line and a remedy."""

import os
import subprocess
import sys

import pytest

from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.run import Listener, train
from tests.cli.trained import SMALL_GROUPS, make_spec, train_run, write_colours
from tests.training.test_checkpoints_under_fire import own_disk

SMALL = {**SMALL_GROUPS, "data.limit": 64, "data.test_limit": 20, "epochs": 2}
DIGITS = ["--data", "digits", "--limit", "64", "--epochs", "1", "--threads", "1", "--quiet"]
DIGITS += ["--set", "group.num_batches=2", "--set", "group.batch_size=4", "--set", "data.test_limit=20"]


def a_file(events):
    events.write_text("in the way")


def a_link_to_nowhere(events):
    events.symlink_to("nowhere/at/all")


def a_folder_in_place_of_an_old_file(events):
    (events / "events.out.tfevents.old").mkdir(parents=True)


@pytest.mark.parametrize("obstacle", [a_file, a_link_to_nowhere, a_folder_in_place_of_an_old_file])
def test_a_log_that_cannot_be_written_ends_no_run(obstacle, tmp_path):
    spec, said = make_spec(**SMALL), []

    class Noting(Listener):
        def message(self, text):
            said.append(text)

    folder = RunFolder.of(spec, tmp_path)
    folder.path.mkdir()
    obstacle(folder.events)
    record = train(spec, out=tmp_path, data_dir=tmp_path, listener=Noting())
    assert record.status == "done"
    assert folder.finished()
    [complaint] = [text for text in said if "TensorBoard" in text]
    assert complaint.startswith(f"no more events for TensorBoard: {folder.events} cannot be written (")
    assert complaint.endswith("; the run goes on")


FULL = """
import resource, sys
from pathlib import Path
from deepbilevel_lab.records import Row
from deepbilevel_lab.training.events import Events

resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))
events = Events(Path(sys.argv[1]), [], print)
for epoch in range(1, 100):
    events.add(Row(epoch=epoch, lr=0.1, loss=1.0, negative_share=0.0, test=50.0))
events.close()
"""


@pytest.mark.skipif(os.name != "posix", reason="limits are those of POSIX")
def test_a_log_that_outgrows_its_disk_is_said_once(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "events"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("no more events for TensorBoard") == 1


POOR = """
import sys
{before}
from deepbilevel_lab.cli import main
main()
"""
LITTLE_MEMORY = """
import resource
from pathlib import Path
import deepbilevel_lab.training.run, deepbilevel_lab.cli.train, deepbilevel_lab.training.spec_files
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (150 << 20),) * 2)
"""
NO_LOCKS = """
import errno, fcntl, os
def flock(descriptor, operation):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = flock
"""


def run_poor(before, *arguments):
    command = [sys.executable, "-c", POOR.format(before=before), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def one_line(done):
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.skipif(sys.platform != "linux", reason="memory of a process is told by Linux")
def test_too_little_memory_is_said_with_a_remedy(tmp_path):
    pictures = write_colours(tmp_path / "pictures", per_class=8)
    settings = ["--set", "group.num_batches=2", "--set", "group.batch_size=2", "--epochs", "1", "--threads", "1"]
    done = run_poor(
        LITTLE_MEMORY, "train", "--data", pictures, "--network", "alexnet", *settings, "--out", tmp_path / "runs"
    )
    assert "memory is missing: take a smaller group.batch_size or network" in one_line(done)


def test_a_disk_without_locks_is_said_with_a_remedy(tmp_path):
    done = run_poor(NO_LOCKS, "train", *DIGITS, "--out", tmp_path)
    assert "cannot lock files, which keeps two processes apart: choose another one with --out" in one_line(done)


def test_a_disk_without_inodes_is_said_with_a_remedy(tmp_path):
    if own_disk(tmp_path) is None:
        pytest.skip("no disk can be mounted here")
    script = (
        'mount -t tmpfs -o size=20m,nr_inodes="$2" tmpfs "$1" && out="$1/runs" && shift 2 && exec "$@" --out "$out"'
    )
    train = [sys.executable, "-m", "deepbilevel", "train", *DIGITS]
    for inodes in (4, 6, 8, 9):
        words = [*own_disk(tmp_path)[:2], "sh", "-c", script, "sh", str(tmp_path), str(inodes), *train]
        line = one_line(subprocess.run(words, capture_output=True, text=True, check=False))
        assert "Remove some of them and run the same command again" in line or "if `df -i` shows no free inodes" in line


def test_a_sound_run_has_its_events(tmp_path):
    folder = train_run(tmp_path, make_spec(**SMALL))
    assert len(list((folder / "events").iterdir())) == 1
