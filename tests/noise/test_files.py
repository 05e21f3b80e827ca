"""Noisy labels as files: written whole or not at all, and read back as they were."""

import errno
import json
import os
import stat
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepbilevel
from deepbilevel_lab.noise import NoisyLabels, Provenance, flip_uniformly, load_noisy_labels, save_noisy_labels
from tests.noise.saved import NOISY, PROVENANCE, entries_of, save_in


@pytest.fixture
def path(tmp_path):
    return save_in(tmp_path)


def test_everything_comes_back(path):
    noisy, provenance = load_noisy_labels(str(path))
    for name in ("labels", "clean_labels", "flipped"):
        np.testing.assert_array_equal(getattr(noisy, name), getattr(NOISY, name))
    assert noisy.num_classes == 4
    assert provenance == PROVENANCE
    assert provenance.version == deepbilevel.__version__


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4))), st.text(), st.none() | st.floats(0, 1))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_labels_and_any_words_come_back(tmp_path, pairs, text, rate):
    labels, clean_labels = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    provenance = Provenance(kind=text, dataset=text, rate=rate)
    save_noisy_labels(tmp_path / "any.npz", NoisyLabels(labels, clean_labels, 5), provenance)
    noisy, loaded = load_noisy_labels(tmp_path / "any.npz")
    np.testing.assert_array_equal(noisy.labels, labels)
    np.testing.assert_array_equal(noisy.clean_labels, clean_labels)
    assert loaded == provenance


def test_others_can_read_it_without_this_package(path):
    entries = entries_of(path)
    about = json.loads(str(entries["about"]))
    assert {name: entry.dtype.str for name, entry in entries.items() if name != "about"} == {
        "labels": "<i8",
        "clean_labels": "<i8",
        "flipped": "|b1",
    }
    assert about["num_classes"] == 4
    assert about["provenance"]["dataset"] == "“digits”, train"


def test_the_same_content_gives_the_same_bytes_whenever_it_is_written(path, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 2e9)
    monkeypatch.setattr("time.localtime", lambda *_: (2033, 5, 18, 3, 33, 20, 2, 138, 0))
    save_noisy_labels(tmp_path / "again.npz", NOISY, PROVENANCE)
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    assert all(entry.date_time[0] == 1980 for entry in zipfile.ZipFile(path).infolist())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(path, monkeypatch):
    before = path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        save_noisy_labels(path, flip_uniformly([0, 1], 1, num_classes=2, seed=0), PROVENANCE)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_the_file_is_on_disk_before_it_takes_its_name(path, monkeypatch):
    path.unlink()
    seen = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: seen.append((path.exists(), os.fstat(descriptor).st_size)))
    save_noisy_labels(path, NOISY, PROVENANCE)
    assert seen[0] == (False, path.stat().st_size)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_the_file_can_be_read_by_whom_the_umask_allows(path):
    umask = os.umask(0o022)
    try:
        save_noisy_labels(path, NOISY, PROVENANCE)
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_missing_file_or_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"labels\.npz"):
        load_noisy_labels(tmp_path / "labels.npz")
    with pytest.raises(FileNotFoundError, match=r"lies in a folder that does not exist; make .*absent first"):
        save_noisy_labels(tmp_path / "absent" / "labels.npz", NOISY, PROVENANCE)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"kind": None}, TypeError, "kind must be text, got None"),
        ({"dataset": 10}, TypeError, "dataset must be text, got 10"),
        ({"rate": 40}, ValueError, "rate must lie between 0 and 1, got 40"),
        ({"seed": "5"}, TypeError, "seed must be a whole number, got '5'"),
    ],
)
def test_a_provenance_says_what_it_must(changes, error, message):
    with pytest.raises(error, match=message):
        Provenance(**{"kind": "uniform", "dataset": "digits", **changes})


def test_numbers_of_numpy_are_written_as_numbers(path):
    save_noisy_labels(path, NOISY, Provenance("uniform", "digits", rate=np.float32(0.5), seed=np.int64(5)))
    assert load_noisy_labels(path)[1] == Provenance("uniform", "digits", rate=0.5, seed=5)
