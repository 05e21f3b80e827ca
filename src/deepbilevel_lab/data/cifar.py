"""CIFAR-10 and CIFAR-100 from their published python archives, and the human labels of CIFAR-10N and CIFAR-100N.

This module knows the archives' layout and checksums; how files are fetched is ``download.py``. Made images in the same
layout, for trying things out, are read where the names of their classes say that they are made, and only if they are
exactly what ``made_pictures.py`` draws. Everything else must have its published checksum. Human labels are what people
answered when they were asked to label CIFAR's training images again.
"""

import hashlib
import io
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deepbilevel_lab.data.download import Archive
from deepbilevel_lab.data.image_set import ImagesInMemory
from deepbilevel_lab.data.made_pictures import make_rows
from deepbilevel_lab.data.plain_pickle import read_pickle
from deepbilevel_lab.regular_files import read_regular

_LARGEST_LABEL_FILE = 64_000_000  # bytes, unpacked: thirty times what the published ones hold


@dataclass(frozen=True)
class CifarRelease:
    """Where one of the two data sets stands and what its files are called."""

    name: str
    folder: str
    archive: Archive
    checksums: dict[str, str]
    splits: dict[str, Sequence[str]]
    label_key: bytes
    meta_file: str
    class_names_key: bytes


CIFAR10 = CifarRelease(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        size=170_498_071,
    ),
    checksums={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    },
    splits={"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]},
    label_key=b"labels",
    meta_file="batches.meta",
    class_names_key=b"label_names",
)

CIFAR100 = CifarRelease(
    name="cifar100",
    folder="cifar-100-python",
    archive=Archive(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        size=169_001_437,
    ),
    checksums={
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "meta": "7973b15100ade9c7d40fb424638fde48",
    },
    splits={"train": ["train"], "test": ["test"]},
    label_key=b"fine_labels",
    meta_file="meta",
    class_names_key=b"fine_label_names",
)

# Our name of a label set -> the names it has in files.
_SPELLINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "cifar10": {
        "aggre": ("aggre", "aggre_label"),
        "random1": ("random1", "random_label1"),
        "random2": ("random2", "random_label2"),
        "random3": ("random3", "random_label3"),
        "worst": ("worst", "worse_label"),
    },
    "cifar100": {"noisy_fine": ("noisy_fine", "noisy_label")},
}
# SHA-256 of the answers themselves, which are published in several formats, as 64-bit numbers. The authors print no
# checksum: these are of a copy whose shares of wrong labels are those of their paper. CIFAR-100N was not at hand.
_KNOWN_ANSWERS = {
    "aggre": "b3c3d486d22c3055756e7b1b1a0e98b099c1d68b771633023b0f76fa2e09ede6",
    "random1": "b5dc9007ae247a48ce267bec37a1310b0cd65ed73801ca7e595fb954902575a7",
    "random2": "1182c45d3a24636640fe1e3743b9566b6fabe86b2ed14f6b8216799e209a0d4e",
    "random3": "b51e116c617ded2c98be095ba8b3abae8adfa6caa54f7f6eedf50c7aed013d44",
    "worst": "a64d887522cf6d8f4966912a1536ea2d890600929a8465a7f307cdca2501847b",
}
_NUM_TRAIN = 50_000
_HUMAN_CLEAN = ("clean", "clean_label")
_HUMAN_FILES = {
    "cifar10": ("cifar-10n/labels.npz", "CIFAR-10_human.pt", "cifar-10n/CIFAR-10_human.pt"),
    "cifar100": ("cifar-100n/labels.npz", "CIFAR-100_human.pt", "cifar-100n/CIFAR-100_human.pt"),
}


def made_class_names(release: CifarRelease) -> list[bytes]:
    """Return the class names of synthetic images, which tell them from published ones."""
    return [f"made class {number}".encode() for number in range(100 if release is CIFAR100 else 10)]


def load_cifar(release: CifarRelease, directory: Path, split: str) -> ImagesInMemory:
    """Read a split as one tensor; every file must have its published MD5, or hold exactly the images that are made."""
    folder = _find_folder(release, directory)
    meta = _read_content(folder, release.meta_file)
    class_names: list[bytes] = read_batch(meta, folder / release.meta_file).get(release.class_names_key, [])
    made = type(class_names) is list and class_names == made_class_names(release)
    if not made:
        _check_published(release, folder, release.meta_file, meta)
    pixels: list[npt.NDArray[np.uint8]] = []
    labels: list[int] = []
    for name in release.splits[split]:
        content = _read_content(folder, name)
        if not made:
            _check_published(release, folder, name, content)
        own_pixels, own_labels = _images_and_labels(read_batch(content, folder / name), release, folder / name)
        if made:
            _check_made(release, folder / name, own_pixels, own_labels)
        pixels.append(own_pixels)
        labels += own_labels
    return ImagesInMemory(
        images=torch.from_numpy(np.concatenate(pixels).reshape(-1, 3, 32, 32)),
        labels=torch.tensor(labels, dtype=torch.int64),
        class_names=tuple(name.decode() for name in class_names),
    )


def _find_folder(release: CifarRelease, directory: Path) -> Path:
    for folder in (directory / release.folder, directory):
        if (folder / release.meta_file).is_file():
            return folder
    raise FileNotFoundError(
        f"{release.name} is not in {directory} (looked for {release.folder}/{release.meta_file}); "
        f"fetch it with: deepbilevel data fetch {release.name} --dir {directory}"
    )


def _read_content(folder: Path, name: str) -> bytes:
    path = folder / name
    try:
        return read_regular(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing; unpack or download the data set again") from None


def _check_published(release: CifarRelease, folder: Path, name: str, content: bytes) -> None:
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != release.checksums[name]:
        raise ValueError(
            f"{folder / name} has the MD5 {found}, published is {release.checksums[name]}: it is damaged or not the "
            f"original. Delete the folder and run: deepbilevel data fetch {release.name} --dir {folder.parent}"
        )


def _images_and_labels(
    batch: dict[bytes, Any], release: CifarRelease, path: Path
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    pixels, labels = batch.get(b"data"), batch.get(release.label_key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise ValueError(f"{path} holds no 32x32 colour images; download the data set again")
    num_classes = len(made_class_names(release))
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < num_classes for label in labels):
        raise ValueError(f"{path} has labels other than 0 to {num_classes - 1}; download the data set again")
    if len(labels) != len(pixels):
        raise ValueError(f"{path} has {len(pixels)} images but {len(labels)} labels; download the data set again")
    return pixels, labels


def _check_made(release: CifarRelease, path: Path, pixels: npt.NDArray[np.uint8], labels: list[int]) -> None:
    place = [file for files in release.splits.values() for file in files].index(path.name)
    if not labels or not np.array_equal(pixels, make_rows(labels, place * len(labels))):
        raise ValueError(
            f"{path} does not hold the synthetic images that the names of its classes announce; delete the folder and "
            f"make them again, or run: deepbilevel data fetch {release.name} --dir {path.parent.parent}"
        )


def label_sets(data_set: str) -> tuple[str, ...]:
    """Return the names of the human label sets of a data set."""
    return tuple(_SPELLINGS.get(data_set, ()))


def load_human_labels(data_set: str, directory: Path, label_set: str, clean_labels: torch.Tensor) -> torch.Tensor:
    """Return a human label set, after checking that its order is that of ``clean_labels``."""
    path = next((directory / name for name in _HUMAN_FILES[data_set] if (directory / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"the human labels of {data_set} are not in {directory} (looked for {', '.join(_HUMAN_FILES[data_set])}); "
            "their authors publish them as CIFAR-N: put the file there"
        )
    arrays = _read_label_file(path)
    clean = _pick_labels(arrays, _HUMAN_CLEAN, path)
    if not np.array_equal(clean, clean_labels.numpy()):
        raise ValueError(f"{path} is in another order than the images of {data_set}, or of another data set")
    chosen = _pick_labels(arrays, _SPELLINGS[data_set][label_set], path)
    if len(chosen) != len(clean):
        raise ValueError(f"{path} has {len(chosen)} labels in {label_set!r} for {len(clean)} images")
    known = _KNOWN_ANSWERS.get(label_set) if len(clean) == _NUM_TRAIN else None  # synthetic images are fewer
    if known not in (None, hashlib.sha256(chosen.astype("<i8").tobytes()).hexdigest()):
        warnings.warn(
            f"{path}: the labels {label_set!r} are not those of CIFAR-10N that we know; {np.mean(chosen != clean):.2%} "
            "of them are wrong. Fetch the file again if you did not change them",
            stacklevel=2,
        )
    return torch.from_numpy(chosen)


def _read_label_file(path: Path) -> dict[str, Any]:
    try:
        content = read_regular(path)
        if not zipfile.is_zipfile(io.BytesIO(content)):  # what torch.save wrote before version 1.6
            file = io.BytesIO(content)
            arrays = [read_pickle(file) for _ in range(4)][-1]  # after a magic number, a version and the machine's
        else:
            arrays = _read_archive(content)
        if not isinstance(arrays, dict):
            raise TypeError("it holds no dictionary")
        return arrays
    except Exception as error:  # damaged files raise whatever their reader stumbles over
        raise ValueError(f"{path} cannot be read as human labels ({error}); fetch it again") from error


def _read_archive(content: bytes) -> Any:
    """Return the labels of an archive written by ``numpy.savez`` or ``torch.save``."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _LARGEST_LABEL_FILE:
            raise ValueError(f"it unpacks to more than {_LARGEST_LABEL_FILE:,} bytes")
        for name in archive.namelist():
            if name.endswith("/data.pkl"):
                return read_pickle(io.BytesIO(archive.read(name)))
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def _pick_labels(arrays: dict[str, Any], spellings: tuple[str, ...], path: Path) -> npt.NDArray[np.int64]:
    for name in spellings:
        if name in arrays:
            labels = arrays[name]
            if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.ndim != 1:
                raise ValueError(f"{path}: {name!r} is not a row of whole numbers; fetch the file again")
            return labels.astype(np.int64)
    raise ValueError(f"{path} has no labels named {' or '.join(spellings)}, only {', '.join(map(str, arrays))}")


def read_batch(content: bytes, path: Path) -> dict[bytes, Any]:
    """Return the dictionary a published batch holds; anything but plain values and arrays is refused.

    Args:
        content: the bytes of the file.
        path: where they came from, for messages.
    """
    try:
        batch = read_pickle(io.BytesIO(content))
    except Exception as error:  # a broken pickle can raise anything
        raise ValueError(
            f"{path} is not a published batch ({error}); it was not executed. "
            "Delete it and unpack or download the data set again"
        ) from error
    if not isinstance(batch, dict):
        raise ValueError(f"{path} holds a {type(batch).__name__}, expected a dictionary; download the data set again")
    return batch
