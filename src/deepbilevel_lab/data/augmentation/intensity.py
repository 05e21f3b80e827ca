"""Steps that change values and never move a pixel. They return float32.

Bytes keep their scale, 0 to 255, until :class:`ToUnit` divides by it: what comes before works on the numbers
TensorFlow's ``tf.image`` would see after a cast, what comes after on numbers in ``[0, 1]``. Nothing is rounded or
clipped.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from deepbilevel_lab.data.augmentation.step import Draws, check_images, draw_uniform


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
class RandomBrightness:
    """Add one number per image to all its values, as ``tf.image.random_brightness``: ``x + delta``.

    ``delta`` is uniform up to ``max_delta`` either way, on the scale of the images; 63 is what TensorFlow's CIFAR-10
    example uses on 0 to 255. :class:`Standardize` takes it out again.
    """

    max_delta: float = 63.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_delta < float("inf"):
            raise ValueError(
                f"max_delta must be finite and not negative, got {self.max_delta}; it is drawn either way, and 0 adds "
                "nothing"
            )

    def __call__(self, images: Tensor, generator: Draws | None) -> Tensor:
        """Return the images, each with its own brightness."""
        check_images(images)
        uniform = draw_uniform(len(images), generator, device=images.device)
        return images.float() + self.max_delta * (2 * uniform - 1)


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
