"""Files are replaced whole or not at all, with real signals and a real limit of the disk."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from deepbilevel_lab.replacement import remove_leftovers, replacing, write_text


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "record.json"
    path.write_text("old")
    return path


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_text_takes_the_place_of_the_old_as_it_is(path):
    write_text(str(path), "new\r\n“ö”\n")
    assert path.read_bytes() == "new\r\n“ö”\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_it_is_on_the_disk_before_it_takes_its_name_and_then_the_name_is(path, monkeypatch):
    seen = []

    def fsync(descriptor):
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else os.fstat(descriptor).st_size
        seen.append((kind, path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_text(path, "new text")
    assert seen == [(8, "old"), ("folder", "new text")]


def test_until_then_it_stands_beside_the_old_and_is_hidden(path):
    with replacing(path) as stream:
        stream.write(b"new")
        (temporary,) = set(path.parent.iterdir()) - {path}
        assert temporary.name.startswith(".")
        assert temporary.name.endswith(".tmp")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.EIO, "broken")])
def test_a_failure_passes_through_and_leaves_the_old_file_and_nothing_else(path, error):
    def fail():
        with replacing(path) as stream:
            stream.write(b"new")
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_explained_and_keeps_its_number(path, monkeypatch, number):
    def full(_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"record\.json could not be written because the disk is full") as caught:
        write_text(path, "new")
    assert caught.value.errno == number
    for words in (os.strerror(number), "previous version is intact", "Free some space and run the same command again"):
        assert words in str(caught.value)
    assert path.read_text() == "old"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_promises_no_previous_version_where_there_was_none(tmp_path):
    with pytest.raises(OSError, match="nothing was left behind"), replacing(tmp_path / "first"):
        raise OSError(errno.ENOSPC, "no space")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="limits are those of POSIX")
def test_a_real_limit_of_the_size_leaves_the_old_file(path):
    code = """
import resource, sys
from deepbilevel_lab.replacement import write_text
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # Python ignores the signal that goes with it
write_text(sys.argv[1], "x" * 99_000)
write_text(sys.argv[1], "y" * 101_000)
"""
    result = run(code, path)
    assert result.returncode == 1
    assert f"OSError: [Errno {errno.EFBIG}] {path} could not be written because the disk is full" in result.stderr
    assert path.read_text() == "x" * 99_000
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize(
    ("moment", "content", "num_leftovers"),
    [
        ("writing", "old", 1),
        ("before the file is on the disk", "old", 1),
        ("before the new name", "old", 1),
        ("before the name is on the disk", "new" * 10_000, 0),
    ],
)
def test_a_kill_at_any_moment_leaves_the_old_or_the_new(path, moment, content, num_leftovers):
    code = """
import os, pathlib, signal, stat, sys
from deepbilevel_lab.replacement import replacing
path, moment = sys.argv[1:]
die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
real = os.fsync
if moment == "before the file is on the disk":
    os.fsync = die
if moment == "before the new name":
    pathlib.Path.replace = die
if moment == "before the name is on the disk":
    os.fsync = lambda file: die() if stat.S_ISDIR(os.fstat(file).st_mode) else real(file)
with replacing(path) as stream:
    stream.write(b"new" * 9_999)
    stream.flush()
    if moment == "writing":
        die()
    stream.write(b"new")
"""
    assert run(code, path, moment).returncode == -signal.SIGKILL
    assert path.read_text() == content
    leftovers = set(path.parent.iterdir()) - {path}
    assert len(leftovers) == num_leftovers
    assert set(remove_leftovers(path.parent)) == leftovers
    assert list(path.parent.iterdir()) == [path]


def test_only_what_this_module_left_behind_is_removed(tmp_path):
    ours = tmp_path / ".a.json.0123abcd.tmp"
    others = [
        tmp_path / name for name in ("a.json", ".a.tmp", "a.json.0123abcd.tmp", ".a.0123abcd.tmp.b", ".a.xyz.tmp")
    ]
    for file in (ours, *others):
        file.touch()
    folder = tmp_path / ".folder.0123abcd.tmp"
    folder.mkdir()
    assert remove_leftovers(str(tmp_path)) == [ours]
    assert set(tmp_path.iterdir()) == {*others, folder}
    assert remove_leftovers(tmp_path / "absent") == []


@pytest.mark.skipif(os.name != "posix", reason="Windows cannot put the name of a file on the disk")
def test_a_disk_that_cannot_sync_folders_is_no_error_and_one_that_fails_is(path, monkeypatch):
    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    number = errno.EINVAL
    write_text(path, "new")
    assert path.read_text() == "new"
    number = errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_text(path, "newer")


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"lies in a folder that does not exist; make .*absent first"):
        write_text(tmp_path / "absent" / "file", "")
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_folder_at_work_needs_no_folder_in_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text("here", "text")
    assert Path("here").read_text() == "text"


def test_it_loads_no_torch():
    result = run("import sys, deepbilevel_lab.replacement; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr
