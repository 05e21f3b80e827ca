"""Checkpoints come back as they were, and the newest sound one counts, whatever happened to the others."""

import errno
import hashlib
import json
import os
import pickle
import random
import sys
import tracemalloc
from collections import OrderedDict

import pytest
import torch
from safetensors import safe_open

from deepbilevel.training.checkpoints import Checkpoints
from tests.training.test_packing import same

OLD = {"model": {"weight": torch.zeros(2)}}
ROW = torch.arange(6.0).reshape(2, 3)
STATE = {
    "model": OrderedDict({"ö.weight": torch.randn(2, 3).bfloat16(), "bias": torch.ones(3), "flag": torch.tensor(True)}),
    "optimizer": {"state": {0: {"step": torch.tensor(3.0), "shared": ROW, "view": ROW[1:], "one": ROW[:1, 1]}}},
    "history": [0.5, float("nan"), (1, None)],
    "empty": torch.zeros(0, 3, dtype=torch.int64),
    "turned": ROW.T,
}


class Reports(list):
    def __call__(self, path, reason):
        assert isinstance(reason, str)
        assert reason
        self.append(path.name)


@pytest.fixture
def reports():
    return Reports()


@pytest.fixture
def checkpoints(tmp_path, reports):
    return Checkpoints(tmp_path / "checkpoints", on_damaged=reports)


def names(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_everything_comes_back_and_needs_the_file_no_longer(checkpoints, reports):
    path = checkpoints.save(123, STATE)
    assert path.name == "step-00000123.safetensors"
    step, state = checkpoints.load_latest()
    path.write_bytes(bytes(path.stat().st_size))  # not removed: a file that is mapped into memory would live on
    assert step == 123
    assert same(state, STATE)
    assert reports == []


def test_no_checkpoint_is_none(checkpoints):
    assert checkpoints.load_latest() is None
    assert not checkpoints.folder.exists()
    checkpoints.folder.mkdir()
    (checkpoints.folder / "notes.safetensors").touch()
    assert checkpoints.load_latest() is None


def test_the_newest_count_by_number_and_the_older_go(checkpoints):
    for step in (99_999_999, 100_000_000, 5, 100_000_001):
        checkpoints.save(step, {"step": step})
    assert names(checkpoints) == ["step-100000000.safetensors", "step-100000001.safetensors"]
    assert [path.name for path in checkpoints.paths()] == names(checkpoints)[::-1]
    assert checkpoints.load_latest() == (100_000_001, {"step": 100_000_001})


def test_newer_files_do_not_push_out_what_was_just_saved(checkpoints, reports):
    checkpoints.folder.mkdir()
    for step in (7, 8, 9):
        (checkpoints.folder / f"step-0000000{step}.safetensors").write_bytes(b"damaged")
    for step in (1, 2, 3):
        checkpoints.save(step, {"step": step})
    assert checkpoints.load_latest() == (3, {"step": 3})
    assert [name[12:13] for name in names(checkpoints)] == ["2", "3", "7", "8", "9"]
    assert [name[12:13] for name in reports] == ["9", "8", "7"]


def test_the_same_state_gives_the_same_bytes(checkpoints, tmp_path):
    other = Checkpoints(tmp_path / "other")
    assert checkpoints.save(1, STATE).read_bytes() == other.save(1, STATE).read_bytes()


def test_other_tools_can_read_the_tensors(checkpoints):
    with safe_open(checkpoints.save(1, STATE), framework="pt") as file:
        assert sorted(file.keys()) == sorted(
            ["model.ö.weight", "model.bias", "model.flag", "empty", "turned"]
            + [f"optimizer.state.0.{name}" for name in ("step", "shared", "view", "one")]
        )
        assert same(file.get_tensor("model.ö.weight"), STATE["model"]["ö.weight"])
        assert same(file.get_tensor("turned"), ROW.T)
        assert file.metadata()["format"] == "1"


def test_every_number_is_aligned(checkpoints):
    content = checkpoints.save(1, STATE).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    starts = {name: start + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}
    assert starts["empty"] % 8 == starts["turned"] % 4 == starts["model.ö.weight"] % 2 == 0


def test_every_flipped_bit_is_found(checkpoints, reports):
    checkpoints.save(1, OLD)
    path = checkpoints.save(2, STATE)
    sound = path.read_bytes()
    assert checkpoints.load_latest()[0] == 2
    bits = random.Random(0)
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << bits.randrange(8)
        path.write_bytes(damaged)
        step, state = checkpoints.load_latest()
        assert (step, reports) == (1, [path.name]), f"byte {position}"
        assert same(state, OLD)
        reports.clear()
    path.write_bytes(sound.replace(b'"model.\\u00f6', b'"model.\\u00F6'))  # a bit that changes no letter of the name
    assert (checkpoints.load_latest()[0], reports) == (1, [path.name])
    path.write_bytes(sound)
    assert checkpoints.load_latest()[0] == 2


def test_every_truncation_and_addition_is_found(checkpoints, reports):
    checkpoints.save(1, OLD)
    path = checkpoints.save(2, STATE)
    sound = path.read_bytes()
    for damaged in [*(sound[:length] for length in range(len(sound))), sound + b"\0", sound + sound]:
        path.write_bytes(damaged)
        assert (checkpoints.load_latest()[0], reports) == (1, [path.name]), f"{len(damaged)} bytes"
        assert path.read_bytes() == damaged
        reports.clear()


def test_if_none_is_sound_it_says_so(checkpoints, reports):
    for step in (1, 2):
        checkpoints.save(step, OLD).write_bytes(b"")
    with pytest.raises(ValueError, match=r"no sound checkpoint \(step-00000002.*step-00000001.*move these files away"):
        checkpoints.load_latest()
    assert names(checkpoints) == sorted(reports)


def test_damage_is_a_warning_unless_somebody_listens(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, OLD)
    checkpoints.save(2, OLD).write_bytes(b"")
    with pytest.warns(UserWarning, match=r"passing over the damaged checkpoint .*step-00000002.safetensors: it is cut"):
        assert checkpoints.load_latest()[0] == 1


def forge(entries=(), content=b"", about=(), state="{}", signed=None):
    """Return a file with a right checksum, as only an attacker would write it."""

    def encode(value):
        text = json.dumps(value, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)

    about = {"format": "1", "step": "2", "state": state, **dict(about)}
    header = {"__metadata__": about, **dict(entries)}
    about["sha256"] = hashlib.sha256(sys.byteorder.encode() + encode(header) + (signed or content)).hexdigest()
    return len(encode(header)).to_bytes(8, "little") + encode(header) + content


def tensor(shape=(1,), offsets=(0, 4), dtype="F32"):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def framed(text, length=None):
    return (len(text) if length is None else length).to_bytes(8, "little") + text


def test_a_forgery_that_is_no_forgery_is_read(checkpoints):
    checkpoints.save(2, OLD).write_bytes(forge(tensor(), b"\0\0\x80?", state='{"a":{"$tensor":"x"}}'))
    assert checkpoints.load_latest() == (2, {"a": torch.ones(1)})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xff" * 8 + b"{}", id="a header longer than any disk"),
        pytest.param(framed(b"{}", 200_000_000), id="a header longer than the file"),
        pytest.param(framed(b"{}", 0), id="no header"),
        pytest.param(framed(b"[" * 200_000), id="a header of brackets"),
        pytest.param(framed(b'{"a":' * 200_000), id="a header of nested objects"),
        pytest.param(framed(b"[]"), id="a list"),
        pytest.param(framed(b"\xff\xfe"), id="no text"),
        pytest.param(framed(b'{"__metadata__":1}'), id="metadata that is a number"),
        pytest.param(framed(b'{"__metadata__":{"format":"1","a":' + b"9" * 5000 + b"}}"), id="a long number"),
        pytest.param(forge(state="[" * 200_000), id="a state of brackets"),
        pytest.param(forge(state='{"a":' + '{"$tuple":[' * 20_000 + "]}" * 20_000 + "}"), id="tuples in tuples"),
        pytest.param(forge(state="[]"), id="a state that is a list"),
        pytest.param(forge(state='{"a":{"$code":1}}'), id="an unknown mark"),
        pytest.param(forge(state='{"a":{"$tensor":"x"}}'), id="a tensor that is not there"),
        pytest.param(forge(state='{"a":{"$dict":[[[],1]]}}'), id="a key that cannot be one"),
        pytest.param(forge(about={"format": "2"}), id="another format"),
        pytest.param(forge(about={"format": 1}), id="a format that is a number"),
        pytest.param(forge(about={"step": "3"}), id="another step"),
        pytest.param(forge(about={"step": []}), id="a step that is a list"),
        pytest.param(forge({"x": 1}), id="a tensor that is a number"),
        pytest.param(forge(tensor(dtype="F7"), bytes(4)), id="an unknown type"),
        pytest.param(forge(tensor([2**62, 2**62])), id="an absurd shape"),
        pytest.param(forge(tensor([2**40], (0, 2**42))), id="a terabyte"),
        pytest.param(forge(tensor([-1, -1], (0, 4)), bytes(4)), id="a negative shape"),
        pytest.param(forge(tensor([True]), bytes(4)), id="a shape of flags"),
        pytest.param(forge(tensor(["1"]), bytes(4)), id="a shape of text"),
        pytest.param(forge(tensor([1] * 100_000), bytes(4)), id="too many dimensions"),
        pytest.param(forge(tensor([0, 2**70], (0, 0))), id="nothing of absurd width"),
        pytest.param(forge(tensor([1], (4, 8)), bytes(8), signed=bytes(4)), id="a hole"),
        pytest.param(forge(tensor([1], (-4, 0))), id="a place before the file"),
        pytest.param(forge(tensor([1], (0.0, 4.0)), bytes(4)), id="a place in fractions"),
        pytest.param(forge(tensor([1], (0, 4, 8)), bytes(4)), id="three offsets"),
    ],
)
def test_a_hostile_file_is_passed_over(checkpoints, reports, content):
    checkpoints.save(1, OLD)
    path = checkpoints.save(2, OLD)
    path.write_bytes(content)
    assert same(checkpoints.load_latest(), (1, OLD))
    assert reports == [path.name]
    assert path.read_bytes() == content


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("dump", [pickle.dump, torch.save], ids=["pickle", "torch.save"])
def test_code_in_a_file_is_not_run(checkpoints, reports, tmp_path, dump):
    checkpoints.save(1, OLD)
    with (checkpoints.folder / "step-00000002.safetensors").open("wb") as file:
        dump(Payload(tmp_path / "executed"), file)
    assert checkpoints.load_latest()[0] == 1
    assert reports == ["step-00000002.safetensors"]
    assert not (tmp_path / "executed").exists()


@pytest.mark.skipif(os.name != "posix", reason="pipes and links are those of POSIX")
@pytest.mark.parametrize(
    "make", [os.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")], ids=["folder", "pipe", "dangling link"]
)
def test_what_cannot_be_read_is_passed_over(checkpoints, reports, make):
    checkpoints.save(1, OLD)
    make(checkpoints.folder / "step-00000002.safetensors")
    assert checkpoints.load_latest()[0] == 1
    assert reports == ["step-00000002.safetensors"]


def test_a_state_that_cannot_be_stored_changes_nothing(checkpoints):
    checkpoints.save(1, OLD)
    for state, message in [
        ({"model": {"code": print}}, r"^model\.code is a "),
        ({"model": torch.zeros(1, dtype=torch.complex128)}, r"^model is of torch\.complex128"),
    ]:
        with pytest.raises(TypeError, match=message):
            checkpoints.save(2, state)
    assert names(checkpoints) == ["step-00000001.safetensors"]


def test_a_state_too_long_to_be_read_back_is_refused(checkpoints, monkeypatch):
    monkeypatch.setattr("deepbilevel.training.checkpoints._LONGEST_HEADER", 1000)
    with pytest.raises(
        ValueError, match=r"^state holds 1,\d\d\d bytes besides its tensors; .* make tensors of long lists"
    ):
        checkpoints.save(1, {"history": [0] * 500})
    assert not checkpoints.folder.exists()


def test_neither_saving_nor_loading_copies_the_tensors_in_python(checkpoints):
    state = {"weights": torch.zeros(4_000_000)}
    tracemalloc.start()
    try:
        checkpoints.save(1, state)
        loaded = checkpoints.load_latest()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert same(loaded, (1, state))
    assert peak < 2_000_000  # of 16 MB


@pytest.mark.parametrize("keep", [0, -1, True, 1.5, "2"])
def test_an_impossible_keep_is_refused(tmp_path, keep):
    with pytest.raises(ValueError, match="keep must be a whole number of at least 1, got"):
        Checkpoints(tmp_path, keep=keep)


@pytest.mark.parametrize("step", [-1, True, 1.0])
def test_an_impossible_step_is_refused(checkpoints, step):
    with pytest.raises(ValueError, match="step must be a whole number of at least 0, got"):
        checkpoints.save(step, {})


def test_what_a_killed_run_left_is_removed_before_the_next_is_saved(checkpoints):
    checkpoints.folder.mkdir()
    (checkpoints.folder / ".step-00000001.safetensors.0123abcd.tmp").touch()
    checkpoints.save(1, OLD)
    assert names(checkpoints) == ["step-00000001.safetensors"]


def test_the_older_go_only_when_the_new_one_is_there(checkpoints, monkeypatch):
    for step in (1, 2):
        checkpoints.save(step, OLD)

    def full(_):
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            checkpoints.save(3, STATE)
    assert names(checkpoints) == ["step-00000001.safetensors", "step-00000002.safetensors"]
