"""Pictures made for tests of decoding and cropping."""

import io

import numpy as np
import torch
from PIL import Image

from deepbilevel_lab.data.decode import (
    to_tensor,
)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def photo(width: int = 40, height: int = 30, seed: int = 0) -> Image.Image:
    pixels = np.random.RandomState(seed).randint(0, 256, size=(height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def landscape(width: int, height: int) -> Image.Image:
    """A smooth image, of which a JPEG keeps almost everything."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin(7 * x + 3 * y), np.cos(9 * y), np.sin(12 * x * y)]
    return Image.fromarray((127 + 100 * np.stack(waves, axis=2)).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    return tuple(to_tensor(image)[:, y, x].tolist())
