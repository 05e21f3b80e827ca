"""What every data set is: samples with labels. What a sample is, an image or a row of a table, its own class says."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelledSet:
    """Samples and their labels.

    Attributes:
        noun: what people call one of the samples.
        labels: as given: a class per sample, ``[samples]``; or, where a sample has several labels, a 0/1 matrix
            ``[samples, classes]``.
        class_names: the name of each class, in the order of their numbers.
        clean_labels: the true labels, where they are known and differ from ``labels``.
        difficult: several labels only: a mask of labels that count neither as present nor as absent.
        numbers: where these are part of a data set, the number of each sample in the whole.
    """

    noun: ClassVar[str] = "sample"

    labels: Tensor
    class_names: tuple[str, ...]
    clean_labels: Tensor | None = None
    difficult: Tensor | None = None
    numbers: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def multi_label(self) -> bool:
        """Whether a sample can have several labels."""
        return self.labels.ndim == 2

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    def class_counts(self) -> list[int]:
        """Return how many samples carry each class's label."""
        if self.multi_label:
            return self.labels.sum(dim=0).int().tolist()
        return torch.bincount(self.labels, minlength=self.num_classes).tolist()

    def check_labels(self) -> None:
        """Refuse a set without samples, with a label out of range, or with a class nobody belongs to."""
        if len(self) == 0:
            raise ValueError(f"the data set has no {self.noun}s")
        if self.multi_label:
            return  # part of such a set may well lack a class: its samples still show that it is absent
        outside = (self.labels < 0) | (self.labels >= self.num_classes)
        if outside.any():
            index = int(outside.nonzero()[0])
            raise ValueError(
                f"{self.noun} {index} has the label {int(self.labels[index])}, "
                f"but there are {self.num_classes} classes, counted from 0"
            )
        empty = [name for name, count in zip(self.class_names, self.class_counts(), strict=True) if count == 0]
        if empty:
            shown = ", ".join(map(repr, empty[:5])) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
            raise ValueError(f"no {self.noun} has the class {shown}; remove the class or add {self.noun}s of it")


def natural(name: str) -> tuple[int, int, str]:
    """Return what class names are sorted by: "10" after "9" where they are numbers, and names after these.

    >>> sorted(["10", "9", "cat"], key=natural)
    ['9', '10', 'cat']
    """
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)
