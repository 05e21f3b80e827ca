"""Reading labels as people have them, into one class number per image.

This module knows what labels look like; it does not know what a group is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Indices = npt.NDArray[np.int64]
Labels = int | Sequence[Any] | npt.NDArray[Any] | Tensor
"""Classes as numbers or names, one per image; a 0/1 matrix ``[images, classes]``; or how many images there are."""


@dataclass(frozen=True)
class Classes:
    """The class of every image, as a position in ``names``."""

    of_image: Indices
    names: tuple[str, ...]

    @property
    def sizes(self) -> Indices:
        """How many images each class has."""
        return np.bincount(self.of_image, minlength=len(self.names)).astype(np.int64)


def one_class(num_images: int) -> Classes:
    """Put all images into one class, so that matching on classes matches nothing."""
    return Classes(np.zeros(num_images, dtype=np.int64), ("all images",))


def read_classes(labels: Labels, random: np.random.RandomState) -> tuple[Classes, str | None]:
    """Return the classes to match on and, where there is nothing to match on, the reason.

    Multi-label images are matched on an anchor: their rarest positive label. ``random`` settles ties.
    """
    if isinstance(labels, int | np.integer):
        if isinstance(labels, bool) or labels < 1:
            raise ValueError(f"labels as a number is how many images there are, at least 1, got {labels}")
        return one_class(int(labels)), "there are no labels, only a number of images"
    array = _as_array(labels)
    if array.ndim == 2 and np.isin(array, (0, 1)).all():
        return _anchors(array.astype(bool), random), None
    if array.dtype.kind == "f":
        return one_class(len(array)), f"labels are of type {array.dtype}, so they are targets rather than classes"
    if array.ndim != 1:
        raise ValueError(
            f"labels must be one class per image or a 0/1 matrix [images, classes], got shape {array.shape} "
            f"with values such as {', '.join(map(str, np.unique(array)[:5]))}"
        )
    names, of_image = np.unique(array, return_inverse=True)
    return Classes(of_image.astype(np.int64), tuple(map(str, names))), None


def _as_array(labels: Any) -> npt.NDArray[Any]:
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu()
        if labels.is_floating_point():
            labels = labels.double()  # numpy has no bfloat16
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise TypeError(f"labels must have one entry per image, all of one form: {error}") from error
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    if array.ndim == 0 or array.dtype.kind not in "biufU":
        raise TypeError(
            f"labels must be classes (whole numbers or names), a 0/1 matrix, or a number of images, "
            f"got {type(labels).__name__} holding {array.dtype}"
        )
    if array.size == 0:
        raise ValueError("labels is empty; pass one label per image")
    return array


def _anchors(positive: npt.NDArray[np.bool_], random: np.random.RandomState) -> Classes:
    num_images, num_labels = positive.shape
    without = num_labels  # the class of images with no positive label at all
    anchors = np.full(num_images, without, dtype=np.int64)
    commonest_first = np.lexsort((random.random_sample(num_labels), -positive.sum(axis=0)))
    for label in commonest_first:
        anchors[positive[:, label]] = label  # a rarer label overwrites a commoner one
    used, of_image = np.unique(anchors, return_inverse=True)
    names = tuple("no positive label" if label == without else str(label) for label in used)
    return Classes(of_image.astype(np.int64), names)
