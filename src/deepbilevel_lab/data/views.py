"""Views: what is cut out of an image file and at which size, in training and in evaluation.

A view knows one decoded image and draws from the generator it is given, and from nothing else: the same seed gives the
same crop in whichever worker process it is made. What happens to whole batches of crops is ``recipes.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from deepbilevel.checks import choose
from deepbilevel_lab.data.decode import (
    random_flip,
    random_resized_crop,
    resize_and_center_crop,
    resize_and_random_crop,
    side_needed,
)

if TYPE_CHECKING:
    from PIL.Image import Image

ViewMode = Literal["train", "test", "crops"]
"""``test`` is the middle of the image; ``crops`` are random ones without flips, to be averaged over."""

_THUMBNAIL = 32  # what recipes for small networks start from, as CIFAR's images


@dataclass(frozen=True)
class View(ABC):
    """Base of all views.

    Attributes:
        size: the side of what comes out.
    """

    size: int

    @property
    def needed_side(self) -> int:
        """The shorter side the image must have for nothing to be enlarged; larger files are decoded faster to it."""
        return self.size

    @abstractmethod
    def __call__(self, image: "Image", mode: ViewMode, generator: torch.Generator) -> Tensor:
        """Return the crop, uint8, ``[3, size, size]``."""


class RandomView(View, ABC):
    """A random crop, in training maybe mirrored; in evaluation the middle."""

    def __call__(self, image: "Image", mode: ViewMode, generator: torch.Generator) -> Tensor:
        """See :class:`View`."""
        if mode == "test":
            return resize_and_center_crop(image, _enlarged(self.size), self.size)
        crop = self._crop(image, generator)
        return random_flip(crop, generator=generator) if mode == "train" else crop

    @abstractmethod
    def _crop(self, image: "Image", generator: torch.Generator) -> Tensor:
        """Return a random crop."""


class RandomArea(RandomView):
    """A random box of 30 to 100 % of the image, resized."""

    @property
    def needed_side(self) -> int:
        """See :class:`View`."""
        return side_needed(self.size)

    def _crop(self, image: "Image", generator: torch.Generator) -> Tensor:
        return random_resized_crop(image, self.size, generator=generator)


class ResizedCrop(RandomView):
    """The image resized to 8/7 of the size at its shorter side (256 for 224), of that a crop."""

    @property
    def needed_side(self) -> int:
        """See :class:`View`."""
        return _enlarged(self.size)

    def _crop(self, image: "Image", generator: torch.Generator) -> Tensor:
        return resize_and_random_crop(image, _enlarged(self.size), self.size, generator=generator)


@dataclass(frozen=True)
class Thumbnail(View):
    """The middle square at 32x32, in every mode: what the recipes of small networks take further."""

    size: int = _THUMBNAIL

    def __call__(self, image: "Image", mode: ViewMode, generator: torch.Generator) -> Tensor:
        """See :class:`View`."""
        return resize_and_center_crop(image, self.size, self.size)


VIEWS: Mapping[str, Callable[[int], View]] = MappingProxyType(
    {
        "random-area": RandomArea,
        "resized-crop": ResizedCrop,
        "thumbnail": lambda size: Thumbnail(),
    }
)


def find_view(name: str, size: int) -> View:
    """Return a view of the catalog for images of the network's size.

    >>> find_view("resized-crop", 224).needed_side
    256
    """
    return VIEWS[choose("view", name, VIEWS)](size)


def _enlarged(size: int) -> int:
    return round(size * 8 / 7)
