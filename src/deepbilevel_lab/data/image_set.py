"""Data sets of images: in memory or on disk.

This module knows how images are held and handed out; it does not know any data set's layout.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor
from torch.utils.data import Dataset

from deepbilevel_lab.data.decode import decode_rgb, to_tensor
from deepbilevel_lab.data.labelled_set import LabelledSet


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageSet(LabelledSet, Dataset[tuple[Tensor, Tensor]], ABC):
    """Images and their labels; an item is ``(image, label)``."""

    noun: ClassVar[str] = "image"

    @abstractmethod
    def read(self, index: int) -> Tensor:
        """Return an image as it is stored: uint8, ``[channels, height, width]``."""


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
