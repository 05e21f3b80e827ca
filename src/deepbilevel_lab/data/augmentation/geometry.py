"""Steps that move pixels and never change one: crops and flips. The type of the images is kept."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from deepbilevel_lab.data.augmentation.step import Draws, check_images, draw_below, draw_uniform


@dataclass(frozen=True)
class PadAndCrop:
    """Surround images with ``padding`` zeros and cut ``size`` x ``size`` pixels out of each, at its own random place.

    >>> images = torch.arange(1, 5, dtype=torch.uint8).reshape(1, 1, 2, 2)
    >>> PadAndCrop(padding=1, size=2)(images, torch.Generator().manual_seed(0))
    tensor([[[[0, 3],
              [0, 0]]]], dtype=torch.uint8)
    """

    padding: int
    size: int

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"padding must not be negative, got {self.padding}; 0 pads nothing")
        _check_size(self.size)

    def __call__(self, images: Tensor, generator: Draws | None) -> Tensor:
        """Return the crops, ``[N, C, size, size]``."""
        check_images(images)
        count, _, height, width = images.shape
        rows, columns = (side + 2 * self.padding - self.size + 1 for side in (height, width))
        if min(rows, columns) < 1:
            raise ValueError(
                f"size must be at most that of the padded images, {height + 2 * self.padding} x "
                f"{width + 2 * self.padding}, got {self.size}; crop less or pad more than {self.padding}"
            )
        top, left = (draw_below(places, count, generator, device=images.device) for places in (rows, columns))
        padded = F.pad(images, (self.padding,) * 4)
        # A view of all windows costs nothing; only the one of each image is copied.
        windows = padded.unfold(2, self.size, 1).unfold(3, self.size, 1)
        return windows[torch.arange(count, device=images.device), :, top, left]


@dataclass(frozen=True)
class CenterCrop:
    """Keep the middle ``size`` x ``size`` pixels, as a view; an odd row or column more is cut at the far side.

    >>> CenterCrop(1)(torch.arange(9.0).reshape(1, 1, 3, 3))
    tensor([[[[4.]]]])
    """

    size: int

    def __post_init__(self) -> None:
        _check_size(self.size)

    def __call__(self, images: Tensor, generator: Draws | None = None) -> Tensor:
        """Return the crops, ``[N, C, size, size]``."""
        check_images(images)
        height, width = images.shape[2:]
        if self.size > min(height, width):
            raise ValueError(
                f"size must be at most that of the images, {height} x {width}, got {self.size}; crop less or pad first"
            )
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return images[:, :, top : top + self.size, left : left + self.size]


@dataclass(frozen=True)
class HorizontalFlip:
    """Mirror every image with probability one half, left to right."""

    def __call__(self, images: Tensor, generator: Draws | None) -> Tensor:
        """Return the images, about half of them mirrored."""
        check_images(images)
        mirrored = draw_uniform(len(images), generator, device=images.device) < 0.5
        return torch.where(mirrored, images.flip(3), images)


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1 pixel, got {size}")
