"""Steps of augmentation, and images, for the tests of recipes and of each step."""

import math

import numpy as np
import torch

from deepbilevel_lab.data.augmentation import (
    CenterCrop,
    HorizontalFlip,
    PadAndCrop,
    RandomContrast,
    Standardize,
    ToUnit,
)
from deepbilevel_lab.data.recipes import Recipe

GEOMETRY = [PadAndCrop(padding=4, size=29), CenterCrop(28), HorizontalFlip()]
INTENSITY = [RandomContrast(), Standardize(), ToUnit()]
RANDOM = [PadAndCrop(padding=4, size=29), HorizontalFlip(), RandomContrast()]
STEPS = [*GEOMETRY, *INTENSITY]
SIZES = {"none": 32, "cifarnet": 28, "inception": 29, "inception-28": 28, "pixel-permutation": 29}
SIZES |= {"preact": 32, "preact-cifar100": 32, "imagenet": 32}


def photos(count: int = 6, *, channels: int = 3, height: int = 32, width: int = 32, seed: int = 0) -> torch.Tensor:
    pixels = np.random.RandomState(seed).randint(0, 256, size=(count, channels, height, width))
    return torch.from_numpy(pixels.astype(np.uint8))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def name_of(value: object) -> str:
    return type(value).__name__


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def apply(recipe: Recipe, mode: str, images: torch.Tensor, seed: int = 0) -> torch.Tensor:
    return recipe.apply(mode, images, seeded(seed), indices=torch.arange(len(images)), split="train")


def standardize_slowly(image: np.ndarray) -> np.ndarray:
    image = image.astype(np.float64)
    return (image - image.mean()) / max(image.std(), 1 / math.sqrt(image.size))
