"""What users pass to an audit becomes tensors, or an error that names the argument, the value and the remedy."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = Tensor | npt.NDArray[Any] | Sequence[Any]


def as_tensor(values: Array) -> Tensor:
    """Return a copy on the CPU: int64 for whole numbers of any width, otherwise as it is."""
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"numbers are needed, got {array.dtype}; replace names by class numbers from 0")
    return torch.tensor(array.astype(np.int64) if array.dtype.kind in "iu" else array)


def read_labels(labels: Array, num_classes: int) -> Tensor:
    """Return int64 ``[samples]`` or bool ``[samples, classes]``."""
    read = as_tensor(labels)
    if read.ndim not in (1, 2) or len(read) == 0:
        raise ValueError(
            f"labels must be one class per sample or a 0/1 matrix [samples, classes], got shape {tuple(read.shape)}"
        )
    if read.ndim == 2:
        if read.shape[1] != num_classes:
            raise ValueError(
                f"labels have {read.shape[1]} columns, num_classes is {num_classes}; they must be the same"
            )
        if not ((read == 0) | (read == 1)).all():
            raise ValueError("labels of several classes must be 0 or 1; choose a threshold for soft labels")
        return read.bool()
    if read.dtype != torch.int64:
        raise TypeError(f"labels must be whole numbers, got {read.dtype}; convert them with .long()")
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, got {num_classes}; pass a 0/1 matrix for a single yes or no")
    wrong = ((read < 0) | (read >= num_classes)).nonzero()
    if len(wrong):
        raise ValueError(
            f"labels must be in 0 .. {num_classes - 1}, sample {int(wrong[0])} has {int(read[wrong[0]])}; "
            "pass the right num_classes, or only the samples that have a label"
        )
    return read


def read_indices(indices: Array, num_samples: int) -> Tensor:
    """Return int64 ``[batch]`` on the CPU."""
    read = as_tensor(indices)
    if read.shape == (0,):
        return read.long()  # an empty list has no type
    if read.ndim != 1 or read.dtype != torch.int64:
        raise TypeError(f"indices must be a list of whole numbers, got {read.dtype} of shape {tuple(read.shape)}")
    wrong = read[(read < 0) | (read >= num_samples)]
    if len(wrong):
        raise IndexError(
            f"indices must be in 0 .. {num_samples - 1}, got {int(wrong[0])}; they count the samples of the labels "
            "given to the audit, so a subset needs an audit of its own labels"
        )
    return read


def check_rows(name: str, value: Tensor, num_rows: int) -> None:
    """Refuse what is not a tensor with one row per sample."""
    if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a tensor, got {type(value).__name__}")
    if value.ndim < 1 or len(value) != num_rows:
        raise ValueError(f"{name} must have one row per index: {num_rows}, got shape {tuple(value.shape)}")
