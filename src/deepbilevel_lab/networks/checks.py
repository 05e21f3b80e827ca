"""What every network refuses: images of another size, and a number of classes that is none.

This module knows shapes alone. The convolutions of most networks here would accept images of any size, and train
on them without a word; the network would then not be the one its parameter count and its results belong to.
"""

from torch import Tensor

ImageShape = tuple[int, int, int]
"""Channels, height and width."""


def check_images(images: Tensor, expected: ImageShape) -> None:
    """Refuse a batch that does not have the shape ``[batch, *expected]``."""
    if images.ndim == 4 and tuple(images.shape[1:]) == expected:
        return
    channels, height, width = expected
    raise ValueError(
        f"images must have the shape [batch, {channels}, {height}, {width}] for this network, "
        f"got {list(images.shape)}; {_remedy(images, expected)}"
    )


def _remedy(images: Tensor, expected: ImageShape) -> str:
    shape = tuple(images.shape)
    channels, height, width = expected
    if shape == expected:
        return "a single image needs a batch around it, as in images[None]"
    if images.ndim == 4 and shape[1:] == (height, width, channels):
        return "channels come second here, as in images.movedim(-1, 1)"
    if images.ndim == 4 and shape[1] == channels:
        return f"crop or resize them to {height}x{width}"
    return "check how the images were loaded"


def check_num_classes(num_classes: int) -> None:
    """Refuse a number of classes for which no classifier can be built."""
    if not isinstance(num_classes, int) or isinstance(num_classes, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"num_classes must be a whole number, got {num_classes!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
