"""Which images may be drawn for which label: classes of images, the holdout, and classes that are too small.

This module turns whatever the user has into one class per image (an image with several labels gets an anchor) and sets
apart what only validates. It knows no group and no order.
"""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

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


OnRare = Literal["raise", "repeat", "drop"]


@dataclass(frozen=True)
class Pools:
    """The images of each class that can be drawn.

    Attributes:
        training: per class, the images of the training mini-batches.
        validation: per class, the images that only validate; ``None`` where validation shares the training images.
        caps: per class, how often its label fits into one group.
        names: per class, as the user wrote it.
    """

    training: list[Indices]
    validation: list[Indices] | None
    caps: Indices
    names: tuple[str, ...]

    @property
    def num_images(self) -> int:
        """How many images can be drawn at all."""
        return sum(map(len, self.training)) + sum(map(len, self.validation or []))


def reserve_holdout(
    holdout: float | Sequence[int], classes: Classes, random: np.random.RandomState
) -> npt.NDArray[np.bool_]:
    """Return a mask of the images that only validate: a fraction of each class, or those named."""
    num_images = len(classes.of_image)
    mask = np.zeros(num_images, dtype=bool)
    if isinstance(holdout, float | np.floating):
        if not 0 < holdout < 1:
            raise ValueError(f"holdout as a fraction must lie between 0 and 1, got {holdout}")
        for label, size in enumerate(classes.sizes):
            # At least one: a class that cannot validate could not be trained on either.
            count = max(1, round(holdout * int(size)))
            mask[random.permutation(np.flatnonzero(classes.of_image == label))[:count]] = True
        return mask
    try:
        positions = np.asarray(holdout)
    except ValueError as error:
        raise TypeError(f"holdout must be a fraction or a plain list of positions: {error}") from error
    if positions.size == 0:
        raise ValueError(f"holdout names no image, got {holdout!r}; pass None for no holdout")
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise TypeError(
            f"holdout must be a fraction or the positions of images, got {reprlib.repr(holdout)}; "
            "np.flatnonzero turns a mask into positions"
        )
    if positions.min() < 0 or positions.max() >= num_images:
        raise ValueError(
            f"holdout names positions from {positions.min()} to {positions.max()}, but labels has {num_images} entries"
        )
    mask[positions] = True
    return mask


def split_pools(
    classes: Classes, in_holdout: npt.NDArray[np.bool_] | None, *, num_batches: int, on_rare: OnRare
) -> Pools:
    """Sort images by class and use, and settle what happens to classes too small for a group."""
    by_class = np.split(np.argsort(classes.of_image, kind="stable"), np.cumsum(classes.sizes)[:-1])
    if in_holdout is None:
        training, validation = by_class, None
        caps = classes.sizes // num_batches
    else:
        training = [images[~in_holdout[images]] for images in by_class]
        validation = [images[in_holdout[images]] for images in by_class]
        fits = [(len(train) // (num_batches - 1), len(val)) for train, val in zip(training, validation, strict=True)]
        caps = np.array(fits).min(axis=1)
    rare = [
        label
        for label, cap in enumerate(caps)
        if cap == 0
        and (on_rare != "repeat" or len(training[label]) == 0 or (validation and not len(validation[label])))
    ]
    names = classes.names
    if on_rare == "drop":
        kept = [label for label in range(len(caps)) if label not in set(rare)]
        training = [training[label] for label in kept]
        validation = validation and [validation[label] for label in kept]
        caps = caps[kept]
        names = tuple(names[label] for label in kept)
        if not kept:
            raise ValueError(
                f"on_rare='drop' leaves no class: none is large enough for num_batches={num_batches}; "
                "use fewer mini-batches"
            )
    elif rare:
        raise ValueError(_rare_message(rare, classes, training, validation, num_batches))
    return Pools(training, validation, np.maximum(caps, 1), names)


def _rare_message(
    rare: list[int],
    classes: Classes,
    training: list[Indices],
    validation: list[Indices] | None,
    num_batches: int,
) -> str:
    shown = ", ".join(
        f"{classes.names[label]!r} ({len(training[label])} to train"
        + (f", {len(validation[label])} to validate" if validation else "")
        + ")"
        for label in rare[:5]
    )
    more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
    needs = f"{num_batches - 1} to train and 1 to validate" if validation else f"num_batches={num_batches} images"
    return (
        f"labels: class {shown}{more} has too few images; matched groups need {needs} of every class. "
        "Use fewer mini-batches, or on_rare='drop' to leave such classes out, or on_rare='repeat' to let their "
        "images come more than once in a group (a class with no image to train or none to validate can only be "
        "dropped)"
    )
