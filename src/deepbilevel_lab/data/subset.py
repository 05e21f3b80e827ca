"""Part of a data set: chosen images, in proportion to the classes, always the same ones."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from deepbilevel_lab.data.image_set import ImagesInMemory, ImagesOnDisk
from deepbilevel_lab.data.labelled_set import LabelledSet
from deepbilevel_lab.data.own_items import OwnItems
from deepbilevel_lab.data.table import Table

_SEED = 0  # not a run's seed: runs that are compared must not differ in their images


def take(data: LabelledSet, indices: Tensor) -> LabelledSet:
    """Return the samples at these positions, in this order."""
    of_images = {
        name: None if (value := getattr(data, name)) is None else value[indices]
        for name in ("labels", "clean_labels", "difficult")
    }
    of_images["numbers"] = indices if data.numbers is None else data.numbers[indices]
    if isinstance(data, ImagesInMemory):
        return replace(data, images=data.images[indices], **of_images)
    if isinstance(data, ImagesOnDisk):
        return replace(data, paths=[data.paths[index] for index in indices.tolist()], **of_images)
    if isinstance(data, Table):
        places = indices.tolist()
        columns = {name: [cells[place] for place in places] for name, cells in data.columns.items()}
        return replace(data, columns=columns, **of_images)
    if isinstance(data, OwnItems):
        return replace(data, places=data.places[indices], **of_images)
    raise TypeError(f"data must be images in memory or on disk, or a table, got {type(data).__name__}")


def with_classes(data: LabelledSet, class_names: tuple[str, ...], whose: str) -> LabelledSet:
    """Return the samples with other numbers for their classes, which are found by their names in ``class_names``."""
    if data.class_names == class_names:
        return data
    unknown = [name for name in data.class_names if name not in class_names]
    if unknown or data.multi_label:
        raise ValueError(
            f"the classes of these {data.noun}s are not all among {whose}: {_some(unknown or data.class_names)}; there "
            f"are {_some(class_names)}. Name the folders, or the labels of the table, as these"
        )
    numbers = torch.tensor([class_names.index(name) for name in data.class_names])
    clean = None if data.clean_labels is None else numbers[data.clean_labels]
    return replace(data, labels=numbers[data.labels], clean_labels=clean, class_names=class_names)


def _some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def choose_in_proportion(labels: Tensor, count: int) -> Tensor:
    """Return the positions of ``count`` images, of every class its share to within one; multi-label images at random.

    >>> choose_in_proportion(torch.tensor([0, 0, 0, 0, 1, 1]), 3).shape
    torch.Size([3])
    """
    random = np.random.RandomState(_SEED)
    order = random.permutation(len(labels))
    if count >= len(labels):
        return torch.arange(len(labels))
    if labels.ndim == 2:
        return torch.from_numpy(np.sort(order[:count]))
    shuffled = labels.numpy()[order]
    classes, sizes = np.unique(shuffled, return_counts=True)
    shares = count * sizes / len(labels)
    counts = np.floor(shares).astype(np.int64)
    largest_rests = np.argsort(counts - shares, kind="stable")
    counts[largest_rests[: count - counts.sum()]] += 1
    chosen = [order[shuffled == each][:taken] for each, taken in zip(classes, counts, strict=True)]
    return torch.from_numpy(np.sort(np.concatenate(chosen)))


def set_aside(
    data: LabelledSet, rate: float, *, name: str = "test_rate", part: int = 0, labels: Tensor | None = None
) -> tuple[LabelledSet, LabelledSet]:
    """Split samples into those to train on and a share of ``rate`` for another purpose, which ``name`` says.

    Every ``part`` sets other samples aside, as long as there are enough; then they begin again. That holds for one
    choice of ``labels``, by which they are chosen in proportion: those of ``data`` unless others are given.
    """
    labels = data.labels if labels is None else labels
    count, rest = round(rate * len(data)), torch.arange(len(data))
    for _ in range(part % (len(data) // max(1, count))):
        before = choose_in_proportion(labels[rest], count)
        rest = rest[~torch.isin(torch.arange(len(rest)), before)]
    tested = rest[choose_in_proportion(labels[rest], count)]
    is_tested = torch.zeros(len(data), dtype=torch.bool)
    is_tested[tested] = True
    if not is_tested.any() or is_tested.all():
        raise ValueError(
            f"{name} {rate} of {len(data)} {data.noun}s leaves a part without any; add {data.noun}s or change it"
        )
    return take(data, torch.nonzero(~is_tested).flatten()), take(data, tested)
