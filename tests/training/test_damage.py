"""Damaged, foreign and locked folders: what can be mended is, what cannot is said, and nothing is made worse."""

import json
import os
import random
import shutil
import signal

import pytest
from safetensors.torch import save
from torch import ones

from deepbilevel_lab.training.model_file import load_model
from tests.data.layouts import write_jpeg
from tests.training.commands import DIGITS, Command, only_folder, outcome, run, run_to_the_end
from tests.training.test_packing import same

COMMAND = (*DIGITS, "--epochs", 2)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return outcome(run_to_the_end(*COMMAND, out=tmp_path_factory.mktemp("unbroken")))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Return the runs of a process that was killed in its second epoch, with two checkpoints."""
    out = tmp_path_factory.mktemp("killed")
    process = Command(*COMMAND, "--save-seconds", 0, out=out, waits_after="epoch")
    process.wait_for("waiting")
    process.signal(signal.SIGKILL)
    process.end()
    return out


@pytest.fixture
def folder(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "out")
    return only_folder(tmp_path / "out")


def checkpoints(folder):
    """Return its checkpoints, the newest last."""
    return sorted((folder / "checkpoints").glob("step-*"))


def truncate(content):
    return content[: len(content) // 2]


def flip_a_bit(content):
    damaged = bytearray(content)
    damaged[random.Random(0).randrange(len(content))] ^= 4
    return bytes(damaged)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lambda content: b""])
def test_a_damaged_newest_checkpoint_is_said_and_the_one_before_used(folder, unbroken, damage):
    before, newest = checkpoints(folder)
    newest.write_bytes(damage(newest.read_bytes()))
    code, output, errors = run(*COMMAND, out=folder.parent)
    assert code == 0, errors
    assert f"{newest} is damaged" in output
    assert f"step {int(before.stem.removeprefix('step-'))}" in output
    assert same(outcome(folder), unbroken)


def test_if_all_checkpoints_are_damaged_the_run_says_so_and_touches_nothing(folder):
    for path in checkpoints(folder):
        path.write_bytes(truncate(path.read_bytes()))
    before = {path: path.read_bytes() for path in checkpoints(folder)}
    code, _, errors = run(*COMMAND, out=folder.parent)
    assert code == 1
    assert "holds no sound checkpoint" in errors
    assert "Traceback" not in errors
    assert {path: path.read_bytes() for path in checkpoints(folder)} == before


@pytest.mark.parametrize("content", ["", "{", '{"format": 1}', "[]", "\udcff"])
def test_a_damaged_record_is_said_and_without_it_the_run_goes_on(folder, unbroken, content):
    (folder / "record.json").write_bytes(content.encode(errors="surrogateescape"))
    code, _, errors = run(*COMMAND, out=folder.parent)
    assert "Traceback" not in errors
    if code != 0:
        assert code == 1
        assert str(folder / "record.json") in errors
        (folder / "record.json").unlink()
        run_to_the_end(*COMMAND, out=folder.parent)
    assert same(outcome(folder), unbroken)


def test_what_a_killed_process_left_half_written_is_removed(folder):
    for place in (folder, folder / "steps", folder / "checkpoints"):
        (place / ".epoch-00002.npz.0123abcd.tmp").write_bytes(b"half")
    run_to_the_end(*COMMAND, out=folder.parent)
    assert list(folder.rglob("*.tmp")) == []


def test_a_damaged_or_foreign_model_is_said(tmp_path):
    path = tmp_path / "model.safetensors"
    for content, message in [
        (save({"x": ones(9)}), "was not written by deepbilevel"),
        (save({"x": ones(9)})[:-1], "is damaged: it is cut short"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"^{path} {message}"):
            load_model(tmp_path)


def test_a_lost_model_is_written_again(tmp_path):
    folder = run_to_the_end(*DIGITS, "--epochs", 1, out=tmp_path)
    before = outcome(folder)
    (folder / "model.safetensors").unlink()
    run_to_the_end(*DIGITS, "--epochs", 1, out=tmp_path)
    assert same(outcome(folder), before)


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("record", [None, "damaged"])
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path, record):
    first = Command(*DIGITS, "--epochs", 100000, out=tmp_path)
    folder = first.wait_for("started")["folder"]
    first.signal(signal.SIGSTOP)
    if record is not None:
        (only_folder(tmp_path) / "record.json").write_text(record)
    for option in ("--resume", "--no-resume"):
        code, _, errors = run(*DIGITS, "--epochs", 100000, option, out=tmp_path)
        assert code == 1
        who = f"process {first.process.pid}" if record is None else "another process"
        if record is None or option == "--no-resume":
            assert f"{folder} is in use: {who} is training there" in errors
        assert "Traceback" not in errors
    first.signal(signal.SIGKILL)
    first.end()
    (only_folder(tmp_path) / "record.json").unlink()
    again = Command(*DIGITS, "--epochs", 100000, out=tmp_path)
    again.wait_for("started")
    again.killed_after(0)


def test_a_checkpoint_of_another_run_is_refused(tmp_path, folder):
    command = (*COMMAND, "--seed", 1)
    other = Command(*command, "--save-seconds", 0, out=tmp_path / "other", waits_after="epoch")
    other.wait_for("waiting")
    other.signal(signal.SIGKILL)
    other.end()
    shutil.rmtree(folder / "checkpoints")
    shutil.copytree(only_folder(tmp_path / "other") / "checkpoints", folder / "checkpoints")
    code, _, errors = run(*COMMAND, out=folder.parent)
    assert code == 1
    assert "the checkpoint belongs to run" in errors
    assert "Traceback" not in errors


def test_other_labels_under_the_same_path_are_another_run(tmp_path):
    images = tmp_path / "images"
    for number in range(40):
        write_jpeg(images / "ab"[number % 2] / f"{number}.jpg")
    settings = ("--set", "group.num_batches=2", "--set", "group.batch_size=4", "--threads", 1, "--json")
    command = ("--data", images, "--network", "cifarnet", "--epochs", 3, *settings)
    process = Command(*command, out=tmp_path / "out", waits_after="epoch")
    process.wait_for("waiting")
    process.signal(signal.SIGTERM)
    assert process.end()[0] == 130
    for number in (0, 2, 4):
        (images / "a" / f"{number}.jpg").rename(images / "b" / f"{number}.jpg")
    before = only_folder(tmp_path / "out")
    code, output, errors = run(*command, out=tmp_path / "out")
    assert code == 0, errors
    assert f"the data has changed since {before}" in output
    assert "resuming" not in output
    assert json.loads((before / "record.json").read_text())["status"] == "interrupted"
