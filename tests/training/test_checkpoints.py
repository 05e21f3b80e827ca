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
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from deepbilevel_lab.training.checkpoints import Checkpoints
from tests.training.test_packing import DTYPES, same

OLD = {"model": {"weight": torch.zeros(2)}}
ROW = torch.arange(6.0).reshape(2, 3)
STATE = {
    "model": OrderedDict({"ö.weight": (ROW / 7).bfloat16(), "bias": torch.ones(3), "flag": torch.tensor(True)}),
    "optimizer": {"state": {0: {"step": torch.tensor(3.0), "shared": ROW, "view": ROW[1:], "one": ROW[:1, 1]}}},
    "history": [0.5, float("nan"), (1, None)],
    "empty": torch.zeros(0, 3, dtype=torch.int64),
    "turned": ROW.T,
}


# What version 0.1 wrote of this state at step 2.
EARLIER = Path(__file__).parents[1] / "golden" / "checkpoint_of_version_0_1.safetensors"


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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_type_and_shape_come_back_bit_for_bit(checkpoints, dtype):
    content = torch.arange(2 * 3 * 16, dtype=torch.uint8)
    rows = (content % 2).bool() if dtype is torch.bool else content.view(dtype)
    rows = rows[: rows.numel() // 6 * 6].reshape(2, -1, 3)
    state = {"rows": rows, "turned": rows.mT, "one": rows[0, 0, 1], "cut": rows[:, :1, 1], "none": rows[:0]}
    checkpoints.save(1, state)
    assert same(checkpoints.load_latest(), (1, state))


def test_what_version_0_1_wrote_is_read(checkpoints, reports):
    checkpoints.folder.mkdir()
    (checkpoints.folder / "step-00000002.safetensors").write_bytes(EARLIER.read_bytes())
    assert same(checkpoints.load_latest(), (2, STATE))
    checkpoints.save(3, STATE)
    assert same(checkpoints.load_latest(), (3, STATE))
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
        about = json.loads(file.metadata()["deepbilevel"])
    assert (about["format"], about["step"], about["state"]["history"][0]) == ("2", 1, 0.5)


def test_every_number_is_aligned(checkpoints):
    content = checkpoints.save(1, STATE).read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    starts = {name: start + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}
    assert starts["empty"] % 8 == starts["turned"] % 4 == starts["model.ö.weight"] % 2 == 0


@pytest.fixture(params=["this version", "version 0.1"])
def newest(request, checkpoints):
    """Return the newest of two checkpoints."""
    checkpoints.save(1, OLD)
    path = checkpoints.save(2, STATE)
    if request.param == "version 0.1":
        path.write_bytes(EARLIER.read_bytes())
    assert checkpoints.load_latest()[0] == 2
    return path


def test_every_flipped_bit_is_found(checkpoints, reports, newest):
    sound = newest.read_bytes()
    bits = random.Random(0)
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << bits.randrange(8)
        newest.write_bytes(damaged)
        step, state = checkpoints.load_latest()
        assert (step, reports) == (1, [newest.name]), f"byte {position}"
        assert same(state, OLD)
        reports.clear()
    newest.write_bytes(sound)
    assert checkpoints.load_latest()[0] == 2


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param(b'"model.bias"', b'"mode\\u006c.bias"', id="a letter"),
        pytest.param(b'"shape":[3]', b'"shape": [3]', id="a space"),
    ],
)
def test_another_header_that_means_the_same_is_found(checkpoints, reports, newest, written, read):
    content = newest.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = read.join(content[8 : 8 + length].rsplit(written, 1))
    assert json.loads(header) == json.loads(content[8 : 8 + length])
    newest.write_bytes(framed(header) + content[8 + length :])
    assert (checkpoints.load_latest()[0], reports) == (1, [newest.name])


def test_every_truncation_and_addition_is_found(checkpoints, reports, newest):
    sound = newest.read_bytes()
    for damaged in [*(sound[:length] for length in range(len(sound))), sound + b"\0", sound + sound]:
        newest.write_bytes(damaged)
        assert (checkpoints.load_latest()[0], reports) == (1, [newest.name]), f"{len(damaged)} bytes"
        assert newest.read_bytes() == damaged
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


def forge(entries=(), content=b"", about=(), state="{}"):
    """Return a file with a right checksum, as only an attacker would write it."""
    about = {"sha256": "0" * 64, "format": "2", "step": 2, **dict(about)}
    text = json.dumps(about)[:-1] + f', "state": {state}}}'
    file = framed(json.dumps({"__metadata__": {"deepbilevel": text}, **dict(entries)}).encode()) + content
    before, after = file.split(b"0" * 64)
    return before + hashlib.sha256(before + after).hexdigest().encode() + after


def forge_earlier(entries=(), content=b"", about=(), state="{}"):
    """Return the same as version 0.1 would have written it."""

    def encode(value):
        text = json.dumps(value, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)

    about = {"format": "1", "step": "2", "state": state, **dict(about)}
    header = {"__metadata__": about, **dict(entries)}
    about["sha256"] = hashlib.sha256(sys.byteorder.encode() + encode(header) + content).hexdigest()
    return framed(encode(header)) + content


def tensor(shape=(1,), offsets=(0, 4), dtype="F32"):
    return {"x": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}


def framed(text, length=None):
    return (len(text) if length is None else length).to_bytes(8, "little") + text


def must_be_passed_over(checkpoints, reports, content):
    checkpoints.save(1, OLD)
    path = checkpoints.save(2, OLD)
    path.write_bytes(content)
    assert same(checkpoints.load_latest(), (1, OLD))
    assert reports == [path.name]
    assert path.read_bytes() == content


FORGERIES = pytest.mark.parametrize("forge", [forge, forge_earlier], ids=["this version", "version 0.1"])


@FORGERIES
def test_a_forgery_that_is_no_forgery_is_read(checkpoints, forge):
    checkpoints.save(2, OLD).write_bytes(forge(tensor(), b"\0\0\x80?", state='{"a":{"$tensor":"x"}}'))
    assert checkpoints.load_latest() == (2, {"a": torch.ones(1)})


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"\xff" * 8 + b"{}", id="a header longer than any disk"),
        pytest.param(framed(b"{}", 200_000_000), id="a header longer than the file"),
        pytest.param(framed(b"{}", 0), id="no header"),
        pytest.param(framed(b"{}"), id="nothing"),
        pytest.param(framed(b"[" * 200_000), id="a header of brackets"),
        pytest.param(framed(b'{"a":' * 200_000), id="a header of nested objects"),
        pytest.param(framed(b"[]"), id="a list"),
        pytest.param(framed(b"\xff\xfe"), id="no text"),
        pytest.param(framed(b'{"__metadata__":1}'), id="metadata that is a number"),
        pytest.param(framed(b'{"__metadata__":null}'), id="no metadata"),
        pytest.param(framed(b'{"__metadata__":{"format":"1","a":' + b"9" * 5000 + b"}}"), id="a long number"),
        pytest.param(framed(b'{"__metadata__":{"deepbilevel":"[]"}}'), id="an entry that is a list"),
        pytest.param(framed(b'{"__metadata__":{"deepbilevel":"{\\"format\\":\\"2\\"}"}}'), id="no checksum"),
    ],
)
def test_a_hostile_file_is_passed_over(checkpoints, reports, content):
    must_be_passed_over(checkpoints, reports, content)


@FORGERIES
@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"state": "[" * 200_000}, id="a state of brackets"),
        pytest.param({"state": '{"a":' + '{"$tuple":[' * 20_000 + "]}" * 20_000 + "}"}, id="tuples in tuples"),
        pytest.param({"state": "[]"}, id="a state that is a list"),
        pytest.param({"state": '{"a":{"$code":1}}'}, id="an unknown mark"),
        pytest.param({"state": '{"a":{"$tensor":"x"}}'}, id="a tensor that is not there"),
        pytest.param({"state": '{"a":{"$dict":[[[],1]]}}'}, id="a key that cannot be one"),
        pytest.param({"about": {"format": "3"}}, id="another format"),
        pytest.param({"about": {"format": 1}}, id="a format that is a number"),
        pytest.param({"about": {"step": "3"}}, id="another step"),
        pytest.param({"about": {"step": 3}}, id="another step that is a number"),
        pytest.param({"about": {"step": []}}, id="a step that is a list"),
        pytest.param({"entries": {"x": 1}}, id="a tensor that is a number"),
        pytest.param({"entries": tensor(dtype="F7"), "content": bytes(4)}, id="an unknown type"),
        pytest.param({"entries": tensor([2**62, 2**62])}, id="an absurd shape"),
        pytest.param({"entries": tensor([2**40], (0, 2**42))}, id="a terabyte"),
        pytest.param({"entries": tensor([-1, -1], (0, 4)), "content": bytes(4)}, id="a negative shape"),
        pytest.param({"entries": tensor([True]), "content": bytes(4)}, id="a shape of flags"),
        pytest.param({"entries": tensor(["1"]), "content": bytes(4)}, id="a shape of text"),
        pytest.param({"entries": tensor([1] * 100_000), "content": bytes(4)}, id="too many dimensions"),
        pytest.param({"entries": tensor([0, 2**70], (0, 0))}, id="nothing of absurd width"),
        pytest.param({"entries": tensor([1], (4, 8)), "content": bytes(8)}, id="a hole"),
        pytest.param({"entries": tensor([1], (-4, 0))}, id="a place before the file"),
        pytest.param({"entries": tensor([1], (0.0, 4.0)), "content": bytes(4)}, id="a place in fractions"),
        pytest.param({"entries": tensor([1], (0, 4, 8)), "content": bytes(4)}, id="three offsets"),
    ],
)
def test_a_forged_file_is_passed_over(checkpoints, reports, forge, content):
    must_be_passed_over(checkpoints, reports, forge(**content))


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
    monkeypatch.setattr("deepbilevel_lab.training.checkpoints._LONGEST", 1000)
    with pytest.raises(
        ValueError, match=r"^state holds 1,\d\d\d bytes besides its tensors; .* make tensors of long lists"
    ):
        checkpoints.save(1, {"history": [0] * 500})
    assert not checkpoints.folder.exists()


def test_a_state_as_long_as_is_allowed_can_be_read_back(checkpoints):
    state = {"quotes": '"' * 19_999_000}  # written as \\", and that is escaped again in the header
    checkpoints.save(1, state)
    assert checkpoints.load_latest() == (1, state)


def test_python_holds_the_file_and_its_tensors_and_no_more(checkpoints):
    state = {"weights": torch.zeros(4_000_000)}
    tracemalloc.start()
    try:
        checkpoints.save(1, state)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
        loaded = checkpoints.load_latest()
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert same(loaded, (1, state))
    assert left < 17_000_000  # of 16 MB
    assert peak < 34_000_000


def test_without_safetensors_it_says_what_to_install_before_the_run_begins(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"need safetensors; run: pip install 'deepbilevel\[cli\]'"):
        Checkpoints(tmp_path)


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
