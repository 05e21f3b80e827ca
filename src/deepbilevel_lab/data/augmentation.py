"""The steps that recipes are made of, each vectorised over a batch of images.

First crops and flips, which move pixels and keep the type of the images. Then steps that change values and return
float32: bytes keep their scale, 0 to 255, until :class:`ToUnit` divides by it. What comes before works on the numbers
TensorFlow's ``tf.image`` would see after a cast, what comes after on numbers in ``[0, 1]``; nothing is rounded or
clipped. Last, where random numbers come from, and what a step accepts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Split = Literal["train", "test"]
"""A data set in which images are numbered."""


@dataclass(frozen=True, eq=False)
class DrawsOfPart:
    """The random numbers of some images of a batch: those of all are drawn, and those of the others dropped.

    So an image looks the same whether the whole batch is prepared in one place, or parts of it in several.

    Attributes:
        generator: as for the whole batch.
        num_images: of the whole batch.
        rows: which of them are at hand.
    """

    generator: torch.Generator
    num_images: int
    rows: Tensor


Draws: TypeAlias = torch.Generator | DrawsOfPart


class Step(Protocol):
    """Takes a batch of images ``[N, C, H, W]`` and returns one; the images it was given stay as they were.

    A step that draws at random needs ``generator``; the others ignore it. What is drawn depends on the number of
    images alone, so one image's pixels never change what happens to another. The memory layout is kept.
    """

    def __call__(self, images: Tensor, generator: Draws | None, /) -> Tensor:
        """Return the images as they look after this step."""
        ...


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


@dataclass(frozen=True)
class RandomContrast:
    """Move every value towards or away from the mean of its channel in its image, as ``tf.image.random_contrast``.

    ``(x - mean) * factor + mean`` with one factor per image, uniform between ``lower`` and ``upper``.
    """

    lower: float = 0.2
    upper: float = 1.8

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper < float("inf"):
            raise ValueError(
                f"lower and upper must satisfy 0 <= lower <= upper, got {self.lower} and {self.upper}; "
                "1 leaves an image as it is, 0 makes it uniform"
            )

    def __call__(self, images: Tensor, generator: Draws | None) -> Tensor:
        """Return the images, each with its own contrast."""
        check_images(images)
        uniform = draw_uniform(len(images), generator, device=images.device)
        factors = self.lower + (self.upper - self.lower) * uniform
        values = images.float()
        # The same as above with the mean taken out of the bracket: one pass less over the pixels.
        return values * factors + values.mean(dim=(2, 3), keepdim=True) * (1 - factors)


@dataclass(frozen=True)
class Standardize:
    """Give every image mean 0 and variance 1 over all its values, exactly as ``tf.image.per_image_standardization``.

    ``(x - mean) / max(std, 1 / sqrt(C * H * W))``: the second term keeps a uniform image from being divided by zero.

    >>> Standardize()(torch.tensor([1.0, 3.0]).reshape(1, 1, 1, 2))
    tensor([[[[-1.,  1.]]]])
    """

    def __call__(self, images: Tensor, generator: Draws | None = None) -> Tensor:
        """Return the images with mean 0 and variance 1."""
        check_images(images)
        values = images.float()
        centered = values - values.mean(dim=(1, 2, 3), keepdim=True)
        # torch.var_mean would do this in one call, and takes ten times as long on a CPU.
        variances = centered.square().mean(dim=(1, 2, 3), keepdim=True)
        return centered.mul_(variances.clamp_(min=1 / max(images[0:1].numel(), 1)).rsqrt_())


@dataclass(frozen=True)
class ToUnit:
    """Divide bytes by 255. Images that are floating point already are taken to lie in ``[0, 1]`` and left alone."""

    def __call__(self, images: Tensor, generator: Draws | None = None) -> Tensor:
        """Return the images on the scale of 0 to 1."""
        check_images(images)
        return images.float() / 255 if images.dtype == torch.uint8 else images.float()


@dataclass(frozen=True)
class NormalizeChannels:
    """Subtract from each channel its ``mean`` and divide by its ``std``, those of a data set in ``[0, 1]``."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise ValueError(
                f"mean and std must have one entry per channel, got {len(self.mean)} and {len(self.std)} entries"
            )
        if not all(0 < value < float("inf") for value in self.std):
            raise ValueError(f"std must be positive and finite, got {self.std}; leave a constant channel at 1")

    def __call__(self, images: Tensor, generator: Draws | None = None) -> Tensor:
        """Return the images with normalised channels."""
        check_images(images)
        if images.dtype == torch.uint8:
            raise TypeError(
                "images must be in [0, 1] before their channels are normalised, got uint8; put ToUnit() first"
            )
        if images.shape[1] != len(self.mean):
            raise ValueError(
                f"mean and std must have one entry per channel of the images, {images.shape[1]}, "
                f"got {len(self.mean)} entries; give those of this data set"
            )
        mean, std = (images.new_tensor(each, dtype=torch.float32).reshape(-1, 1, 1) for each in (self.mean, self.std))
        return (images.float() - mean) / std


def check_images(images: Tensor) -> None:
    """Refuse what is not a batch of images of bytes or floating-point numbers."""
    if not isinstance(images, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"images must be a tensor, got {type(images).__name__}; torch.as_tensor makes one")
    if images.ndim != 4:
        raise ValueError(
            f"images must have the shape [images, channels, height, width], got {tuple(images.shape)}; "
            "a single image becomes a batch with images[None]"
        )
    if images.dtype != torch.uint8 and not images.is_floating_point():
        raise TypeError(
            f"images must be uint8 or floating point, got {images.dtype}; "
            "values of 0 to 255 become uint8 with images.to(torch.uint8)"
        )


def draw_uniform(num_images: int, generator: Draws | None, *, device: torch.device) -> Tensor:
    """Draw one number in ``[0, 1)`` per image, shape ``[N, 1, 1, 1]``.

    The numbers are drawn on the CPU and moved: the same seed gives the same images on every device.
    """

    def draw(count: int, source: torch.Generator) -> Tensor:
        return torch.rand((count, 1, 1, 1), generator=source, dtype=torch.float32, device="cpu")

    return _drawn(draw, num_images, generator).to(device)


def draw_below(limit: int, num_images: int, generator: Draws | None, *, device: torch.device) -> Tensor:
    """Draw one whole number in ``0 .. limit - 1`` per image, shape ``[N]``; on the CPU, as above."""

    def draw(count: int, source: torch.Generator) -> Tensor:
        return torch.randint(limit, (count,), generator=source, device="cpu")

    return _drawn(draw, num_images, generator).to(device)


def _drawn(draw: Callable[[int, torch.Generator], Tensor], num_images: int, generator: Draws | None) -> Tensor:
    if not isinstance(generator, DrawsOfPart):
        return draw(num_images, check_generator(generator))
    if len(generator.rows) != num_images:
        raise ValueError(f"rows must name the {num_images} images at hand, got {len(generator.rows)} of them")
    return draw(generator.num_images, check_generator(generator.generator))[generator.rows]


def check_generator(generator: torch.Generator | None) -> torch.Generator:
    """Return the generator, or refuse one that is missing or draws on another device than the CPU."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(
            f"generator must be a torch.Generator for steps that draw at random, got {generator!r}; "
            "make one with torch.Generator().manual_seed(seed)"
        )
    if generator.device.type != "cpu":
        raise ValueError(
            f"generator must draw on the CPU, so that images do not depend on the device, got one on "
            f"{generator.device}; make it with torch.Generator() and leave the images where they are"
        )
    return generator


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"size must be at least 1 pixel, got {size}")
