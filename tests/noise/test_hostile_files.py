"""Files of noisy labels that are damaged, forged or something else: refused by name, and nothing in them is run."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest

from deepbilevel_lab.noise import files, load_noisy_labels
from tests.noise.saved import NOISY, PROVENANCE, entries_of, save_in

NOT_SOUND = "labels.npz is not a sound file of noisy labels: "


@pytest.fixture
def path(tmp_path):
    return save_in(tmp_path)


def rewrite(path, **changes) -> None:
    """Write the file anew with entries changed or left out (``None``), under the old checksum."""
    entries = entries_of(path)
    if isinstance(changes.get("about"), dict):
        changes["about"] = np.array(json.dumps(json.loads(str(entries["about"])) | changes["about"]))
    entries |= changes
    np.savez_compressed(path, **{name: entry for name, entry in entries.items() if entry is not None})


def sign(path) -> None:
    """Give the file the checksum of its content, as a forger would."""
    entries = entries_of(path)
    about = json.loads(str(entries["about"]))
    about.pop("sha256")
    rewrite(path, about={"sha256": files._checksum(entries, about)})


def name_of(value) -> str | None:
    """Name a case after the entries it changes, not after their hundred numbers."""
    return ", ".join(value) if isinstance(value, dict) else None


def test_a_file_cut_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=NOT_SOUND):
            load_noisy_labels(path)


def is_refused(path) -> bool:
    """Say whether a file is refused; if it is not, assert that what it says is what was saved."""
    try:
        noisy, provenance = load_noisy_labels(path)
    except ValueError as error:
        return NOT_SOUND in str(error)
    np.testing.assert_array_equal(noisy.labels, NOISY.labels)
    np.testing.assert_array_equal(noisy.clean_labels, NOISY.clean_labels)
    assert provenance == PROVENANCE
    return False


def test_a_bent_byte_is_noticed_or_says_nothing(path):
    whole = path.read_bytes()
    accepted = set()
    for position, byte in enumerate(whole):
        path.write_bytes(whole[:position] + bytes([byte ^ 0xFF]) + whole[position + 1 :])
        if not is_refused(path):
            accepted.add(position)
    # Zip's own records hold dates and attributes nobody reads, and the last byte of an entry holds the mark that it
    # ends. Of the data no byte can be bent unnoticed.
    for entry in zipfile.ZipFile(io.BytesIO(whole)).infolist():
        name_and_extra = sum(struct.unpack_from("<HH", whole, entry.header_offset + 26))
        start = entry.header_offset + 30 + name_and_extra
        assert entry.compress_size > 50
        assert accepted.isdisjoint(range(start, start + entry.compress_size - 1))


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the pickle was opened",))


@pytest.mark.parametrize("entry", ["labels", "about"])
def test_pickled_entries_are_refused_unopened(path, entry):
    rewrite(path, **{entry: np.array([Trap()], dtype=object)})
    with pytest.raises(ValueError, match=NOT_SOUND + "Object arrays cannot be loaded"):
        load_noisy_labels(path)


def npy_of(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x03\x04", b"labels", npy_of(np.arange(3)), pickle.dumps(Trap())],
    ids=["empty", "cut", "text", "one array", "pickle"],
)
def test_files_of_another_kind_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=NOT_SOUND) as refusal:
        load_noisy_labels(path)
    assert "allow_pickle" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, r"it holds \['about', 'clean_labels', 'flipped'\]"),
        ({"more": np.zeros(1)}, "it holds .*'more'"),
        ({"labels": NOISY.labels[:-1]}, r"its clean_labels have shape \(90,\) of int64"),
        ({"flipped": NOISY.flipped[:-1]}, r"its flipped have shape \(89,\) of bool"),
        ({"labels": NOISY.labels.reshape(2, -1)}, r"its labels have shape \(2, 45\)"),
        ({"labels": NOISY.labels.astype(float)}, r"its labels have shape \(90,\) of float64"),
        ({"labels": np.int64(3)}, ""),
        ({"labels": np.roll(NOISY.labels, 1)}, "its checksum does not match its content"),
        ({"clean_labels": NOISY.labels, "flipped": NOISY.flipped & False}, "its checksum does not match its content"),
        ({"about": {"num_classes": 5}}, "its checksum does not match its content"),
        ({"about": {"provenance": {"kind": "pair"}}}, "its checksum does not match its content"),
        ({"about": {"sha256": None}}, "its checksum does not match its content"),
        ({"about": {"format": 2}}, "its format is not 1, the one this version"),
    ],
    ids=name_of,
)
def test_changed_content_is_refused(path, changes, message):
    rewrite(path, **changes)
    with pytest.raises(ValueError, match=NOT_SOUND + message):
        load_noisy_labels(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flipped": ~NOISY.flipped}, "flipped does not say where"),
        ({"labels": NOISY.labels + 1}, "labels must lie in 0 .. num_classes - 1 = 3, got 1 to 4"),
        ({"about": {"num_classes": 2}}, "labels must lie in 0 .. num_classes - 1 = 1"),
        ({"about": {"num_classes": "4"}}, "num_classes must be a whole number, got '4'"),
        ({"about": {"provenance": {"kind": "pair"}}}, "missing 1 required positional argument: 'dataset'"),
        ({"about": {"provenance": {"kind": 3, "dataset": ""}}}, "kind must be text, got 3"),
        ({"about": {"provenance": {"kind": "", "dataset": "", "evil": 1}}}, "unexpected keyword argument 'evil'"),
    ],
    ids=name_of,
)
def test_nonsense_with_a_right_checksum_is_refused_too(path, changes, message):
    rewrite(path, **changes)
    sign(path)
    with pytest.raises(ValueError, match=NOT_SOUND + ".*" + message):
        load_noisy_labels(path)


def test_a_file_that_would_fill_the_memory_is_not_unpacked(path, monkeypatch):
    monkeypatch.setattr(files, "_LARGEST", 100_000)
    load_noisy_labels(path)
    rewrite(path, labels=np.zeros(1_000_000, dtype=np.int64))
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match=NOT_SOUND + r"it unpacks to 8,\d+,\d+ bytes, more than 100,000"):
        load_noisy_labels(path)
