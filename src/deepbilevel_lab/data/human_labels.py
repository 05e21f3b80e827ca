"""CIFAR-10N and CIFAR-100N: what people answered when they were asked to label CIFAR's training images again.

This module knows the files in which these labels are published; it does not know images.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

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
_CLEAN = ("clean", "clean_label")
_FILES = {
    "cifar10": ("cifar-10n/labels.npz", "CIFAR-10_human.pt", "cifar-10n/CIFAR-10_human.pt"),
    "cifar100": ("cifar-100n/labels.npz", "CIFAR-100_human.pt", "cifar-100n/CIFAR-100_human.pt"),
}


def label_sets(data_set: str) -> tuple[str, ...]:
    """Return the names of the human label sets of a data set."""
    return tuple(_SPELLINGS.get(data_set, ()))


def load_human_labels(data_set: str, directory: Path, label_set: str, clean_labels: torch.Tensor) -> torch.Tensor:
    """Return a human label set, after checking that its order is that of ``clean_labels``."""
    path = next((directory / name for name in _FILES[data_set] if (directory / name).is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"the human labels of {data_set} are not in {directory} (looked for {', '.join(_FILES[data_set])}); "
            "their authors publish them as CIFAR-N: put the file there"
        )
    arrays = _read_arrays(path)
    clean = _pick(arrays, _CLEAN, path)
    if not np.array_equal(clean, clean_labels.numpy()):
        raise ValueError(f"{path} is in another order than the images of {data_set}, or of another data set")
    chosen = _pick(arrays, _SPELLINGS[data_set][label_set], path)
    if len(chosen) != len(clean):
        raise ValueError(f"{path} has {len(chosen)} labels in {label_set!r} for {len(clean)} images")
    return torch.from_numpy(chosen)


def _read_arrays(path: Path) -> dict[str, Any]:
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


def _pick(arrays: dict[str, Any], spellings: tuple[str, ...], path: Path) -> npt.NDArray[np.int64]:
    for name in spellings:
        if name in arrays:
            return np.asarray(arrays[name]).astype(np.int64)
    raise ValueError(f"{path} has no labels named {' or '.join(spellings)}, only {', '.join(map(str, arrays))}")
