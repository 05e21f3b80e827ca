"""CIFAR-10 and CIFAR-100 from their published python archives, and the human labels of CIFAR-10N and CIFAR-100N.

This module knows the archives' layout and checksums; how files are fetched is ``download.py``. Made images in the same
layout, for trying things out, are read where their folder says that it holds such: a list of its own checksums lies in
it, and the names of its classes say so too. Nothing published is ever read without its published checksum. Human labels
are what people answered when they were asked to label CIFAR's training images again.
"""

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deepbilevel_lab.data.download import Archive
from deepbilevel_lab.data.image_set import ImagesInMemory

MADE_LIST = "made-images.md5"  # as md5sum writes it
MADE_PREFIX = b"made "


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
    archive=Archive("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", md5="c58f30108f718f92721af3b95e74349a"),
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
    archive=Archive("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", md5="eb9058c3a382ffc7106e4002c42a8d85"),
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
_HUMAN_CLEAN = ("clean", "clean_label")
_HUMAN_FILES = {
    "cifar10": ("cifar-10n/labels.npz", "CIFAR-10_human.pt", "cifar-10n/CIFAR-10_human.pt"),
    "cifar100": ("cifar-100n/labels.npz", "CIFAR-100_human.pt", "cifar-100n/CIFAR-100_human.pt"),
}


def load_cifar(release: CifarRelease, directory: Path, split: str) -> ImagesInMemory:
    """Read a split as one tensor; every file is checked against its published MD5 before it is opened."""
    folder = _find_folder(release, directory)
    made = _read_made_list(folder)
    meta = _read_checked(release, folder, release.meta_file, made)
    if made is not None and not all(name.startswith(MADE_PREFIX) for name in meta[release.class_names_key]):
        raise ValueError(
            f"{folder / MADE_LIST} says that these images are made, but the names of their classes do not begin with "
            f"{MADE_PREFIX.decode()!r}; remove that file if they are the published ones"
        )
    batches = [_read_checked(release, folder, name, made) for name in release.splits[split]]
    pixels = np.concatenate([_images(batch, folder) for batch in batches])
    labels = np.concatenate([np.asarray(batch[release.label_key], dtype=np.int64) for batch in batches])
    if len(labels) != len(pixels):
        raise ValueError(f"{folder}: {len(pixels)} images but {len(labels)} labels; download the data set again")
    return ImagesInMemory(
        images=torch.from_numpy(pixels),
        labels=torch.from_numpy(labels),
        class_names=tuple(name.decode() for name in meta[release.class_names_key]),
    )


def _find_folder(release: CifarRelease, directory: Path) -> Path:
    for folder in (directory / release.folder, directory):
        if (folder / release.meta_file).is_file():
            return folder
    raise FileNotFoundError(
        f"{release.name} is not in {directory} (looked for {release.folder}/{release.meta_file}); "
        f"fetch it with: deepbilevel data fetch {release.name} --dir {directory}"
    )


def _read_made_list(folder: Path) -> dict[str, str] | None:
    """Return the checksums of made images, or None where the images are the published ones."""
    path = folder / MADE_LIST
    if not path.is_file():
        return None
    lines = [line.split("  ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line[1]: line[0] for line in lines if len(line) == 2}


def _read_checked(release: CifarRelease, folder: Path, name: str, made: Mapping[str, str] | None) -> dict[bytes, Any]:
    path = folder / name
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing; unpack or download the data set again") from None
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if made is not None and found != made.get(name):
        raise ValueError(f"{path} has the MD5 {found}, which {MADE_LIST} beside it does not give; make the images anew")
    if made is None and found != release.checksums[name]:
        raise ValueError(
            f"{path} has the MD5 {found}, published is {release.checksums[name]}: it is damaged or not the original. "
            f"Delete the folder and run: deepbilevel data fetch {release.name} --dir {folder.parent}"
        )
    return read_batch(content, path)


def _images(batch: dict[bytes, Any], folder: Path) -> npt.NDArray[np.uint8]:
    pixels = batch.get(b"data")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise ValueError(f"{folder} holds a batch without 32x32 colour images; download the data set again")
    return pixels.reshape(-1, 3, 32, 32)


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
    return torch.from_numpy(chosen)


def _read_label_file(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
        # The published .pt holds numpy arrays; these names, and no others, may be called while it is read.
        reconstruct = np.empty(0).__reduce__()[0]
        names: list[Any] = [reconstruct, np.ndarray, np.dtype, *(type(np.dtype(kind)) for kind in ("i8", "i4", "u1"))]
        with torch.serialization.safe_globals(names):
            return torch.load(path, weights_only=True)
    except Exception as error:  # damaged files raise whatever their reader stumbles over
        raise ValueError(f"{path} cannot be read as human labels ({error}); fetch it again") from error


def _pick_labels(arrays: dict[str, Any], spellings: tuple[str, ...], path: Path) -> npt.NDArray[np.int64]:
    for name in spellings:
        if name in arrays:
            return np.asarray(arrays[name]).astype(np.int64)
    raise ValueError(f"{path} has no labels named {' or '.join(spellings)}, only {', '.join(map(str, arrays))}")


# What numpy itself calls to make an empty array; the name of its module differs between versions.
_reconstruct = np.empty(0).__reduce__()[0]

_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _RestrictedUnpickler(pickle.Unpickler):
    """Admits what the published batches need: a pickle is a program, and a stranger's could do anything."""

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")  # the batches were written by Python 2

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}") from None


def read_batch(content: bytes, path: Path) -> dict[bytes, Any]:
    """Return the dictionary a published batch holds; anything but plain values and arrays is refused.

    Args:
        content: the bytes of the file.
        path: where they came from, for messages.
    """
    try:
        batch = _RestrictedUnpickler(content).load()
    except Exception as error:  # a broken pickle can raise anything
        raise ValueError(
            f"{path} is not a published batch ({error}); it was not executed. "
            "Delete it and unpack or download the data set again"
        ) from error
    if not isinstance(batch, dict):
        raise ValueError(f"{path} holds a {type(batch).__name__}, expected a dictionary; download the data set again")
    return batch
