"""What every step of a recipe is, what it accepts, and where it gets its random numbers from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch
from torch import Tensor


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
