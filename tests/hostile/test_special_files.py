"""FIFOs, devices and sockets in the place of files: refused at once, where opening them would wait or never end."""

import os
import signal
import socket
from pathlib import Path

import pytest

from deepbilevel_lab.data import load_data
from deepbilevel_lab.data.cifar import CIFAR10
from deepbilevel_lab.data.decode import decode_rgb
from deepbilevel_lab.noise import load_noisy_labels
from deepbilevel_lab.regular_files import read_regular
from deepbilevel_lab.report.records import read_records
from deepbilevel_lab.training.checkpoints import Checkpoints
from deepbilevel_lab.training.comparison import read_entries
from deepbilevel_lab.training.prediction import find_images
from tests.data.layouts import write

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs another machine: this one has no FIFOs")


@pytest.fixture(autouse=True)
def _no_hanging():
    """End a test that waits for ever, with a message instead of the machine's patience."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(60)
    yield
    signal.alarm(0)


def make_fifo(path):
    os.mkfifo(path)


def make_device(path):
    path.symlink_to("/dev/zero")


def make_socket(path):
    # The name of a socket must be short; it stays where it is bound.
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


SPECIAL = {"a FIFO": make_fifo, "a device": make_device, "a socket": make_socket}
REFUSED = "is a FIFO, a device or a socket, not a file; remove it, or copy its content"


@pytest.fixture(params=SPECIAL.values(), ids=SPECIAL)
def special(request):
    return request.param


def test_what_is_no_file_is_refused(special, tmp_path):
    special(tmp_path / "photo.jpg")
    with pytest.raises(ValueError, match=f"photo.jpg {REFUSED}"):
        decode_rgb(tmp_path / "photo.jpg")
    special(tmp_path / "table.csv")
    with pytest.raises(ValueError, match=f"table.csv {REFUSED}"):
        find_images([tmp_path / "table.csv"])
    special(tmp_path / "labels.npz")
    with pytest.raises(ValueError, match=f"labels.npz {REFUSED}"):
        load_noisy_labels(tmp_path / "labels.npz")


def test_data_sets_are_files(special, tmp_path):
    root = write("cifar10", tmp_path / "cifar")
    (root / CIFAR10.folder / "data_batch_2").unlink()
    special(root / CIFAR10.folder / "data_batch_2")
    with pytest.raises(ValueError, match=f"data_batch_2 {REFUSED}"):
        load_data("cifar10", root)
    root = write("clothing1m", tmp_path / "clothing1m")
    (root / "noisy_label_kv.txt").unlink()
    special(root / "noisy_label_kv.txt")
    with pytest.raises(ValueError, match=f"noisy_label_kv.txt {REFUSED}"):
        load_data("clothing1m", root)


def test_records_and_checkpoints_are_files(special, tmp_path):
    (tmp_path / "run").mkdir()
    special(tmp_path / "run" / "record.json")
    (entry,) = read_entries(tmp_path)
    assert entry.status == "damaged"
    assert "is a FIFO, a device or a socket" in entry.error
    (problem,) = read_records(tmp_path).problems
    assert "is a FIFO, a device or a socket" in problem.why
    special(tmp_path / "step-00000001.safetensors")
    with pytest.raises(ValueError, match=r"no sound checkpoint .*step-00000001.safetensors: it is not a file"):
        Checkpoints(tmp_path, on_damaged=lambda path, reason: None).load_latest()


def test_a_file_that_is_exchanged_for_a_fifo_is_noticed_too(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_regular(path) == b"content"
    as_it_was = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda self, **_: as_it_was)
    with pytest.raises(ValueError, match=REFUSED):
        read_regular(path)
