"""What every step of a recipe is, what it accepts, and where it gets its random numbers from."""

from typing import Protocol

import torch
from torch import Tensor


class Step(Protocol):
    """Takes a batch of images ``[N, C, H, W]`` and returns one; the images it was given stay as they were.

    A step that draws at random needs ``generator``; the others ignore it. What is drawn depends on the number of
    images alone, so one image's pixels never change what happens to another. The memory layout is kept.
    """

    def __call__(self, images: Tensor, generator: torch.Generator | None, /) -> Tensor:
        """Return the images as they look after this step."""
        ...


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


def draw_uniform(num_images: int, generator: torch.Generator | None, *, device: torch.device) -> Tensor:
    """Draw one number in ``[0, 1)`` per image, shape ``[N, 1, 1, 1]``.

    The numbers are drawn on the CPU and moved: the same seed gives the same images on every device.
    """
    shape = (num_images, 1, 1, 1)
    return torch.rand(shape, generator=check_generator(generator), dtype=torch.float32, device="cpu").to(device)


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
