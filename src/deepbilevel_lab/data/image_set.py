"""What every data set is: images with a label each, in memory or on disk.

This module knows how images are held and handed out; it does not know any data set's layout.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from deepbilevel_lab.data.decode import decode_rgb, to_tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageSet(Dataset[tuple[Tensor, Tensor]], ABC):
    """Images and their labels; an item is ``(image, label)``.

    Attributes:
        labels: as given: a class per image, ``[images]``; or for multi-label images a 0/1 matrix ``[images, classes]``.
        class_names: the name of each class, in the order of their numbers.
        clean_labels: the true labels, where they are known and differ from ``labels``.
        difficult: multi-label only: a mask of labels that count neither as present nor as absent.
        numbers: where these are part of a data set, the number of each image in the whole.
    """

    labels: Tensor
    class_names: tuple[str, ...]
    clean_labels: Tensor | None = None
    difficult: Tensor | None = None
    numbers: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def multi_label(self) -> bool:
        """Whether an image can have several labels."""
        return self.labels.ndim == 2

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return len(self.class_names)

    @abstractmethod
    def read(self, index: int) -> Tensor:
        """Return an image as it is stored: uint8, ``[channels, height, width]``."""

    def class_counts(self) -> list[int]:
        """Return how many images carry each class's label."""
        if self.multi_label:
            return self.labels.sum(dim=0).int().tolist()
        return torch.bincount(self.labels, minlength=self.num_classes).tolist()

    def check_labels(self) -> None:
        """Refuse a set without images, with a label out of range, or with a class nobody belongs to."""
        if len(self) == 0:
            raise ValueError("the data set has no images")
        if self.multi_label:
            return  # part of such a set may well lack a class: its images still show that it is absent
        outside = (self.labels < 0) | (self.labels >= self.num_classes)
        if outside.any():
            index = int(outside.nonzero()[0])
            raise ValueError(
                f"image {index} has the label {int(self.labels[index])}, "
                f"but there are {self.num_classes} classes, counted from 0"
            )
        empty = [name for name, count in zip(self.class_names, self.class_counts(), strict=True) if count == 0]
        if empty:
            shown = ", ".join(map(repr, empty[:5])) + (f" and {len(empty) - 5} more" if len(empty) > 5 else "")
            raise ValueError(f"no image has the class {shown}; remove the class or add images of it")


@dataclass(frozen=True, eq=False, kw_only=True)
class ImagesInMemory(ImageSet):
    """Small images as one tensor: uint8, ``[images, channels, height, width]``."""

    images: Tensor

    def read(self, index: int) -> Tensor:
        """Return an image as it is stored."""
        return self.images[index]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]


@dataclass(frozen=True, eq=False, kw_only=True)
class ImagesOnDisk(ImageSet):
    """Image files, decoded when they are asked for: in the workers of a ``DataLoader``, if it has any.

    Attributes:
        paths: the file of each image.
        view: what turns a decoded image into a tensor of the size the network wants, a random crop for instance. It
            gets a Pillow image and draws from torch's own random numbers, which a loader seeds for each worker.
    """

    paths: Sequence[Path]
    view: Callable[[Any], Tensor] = field(default=to_tensor)

    def read(self, index: int) -> Tensor:
        """Return an image as it is stored."""
        return to_tensor(decode_rgb(self.paths[index]))

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.view(decode_rgb(self.paths[index])), self.labels[index]

    def check_files(self) -> None:
        """Refuse a set of which files are missing; they are looked for, not opened."""
        missing = [path for path in self.paths if not path.is_file()]
        if missing:
            raise FileNotFoundError(
                f"{len(missing)} of {len(self.paths)} image files are missing, the first of them {missing[0]}; "
                "unpack the data set again, or correct the list that names them"
            )
