"""The pieces augmentation is made of, each vectorised over a batch of images."""

from deepbilevel_lab.data.augmentation.geometry import CenterCrop, HorizontalFlip, PadAndCrop
from deepbilevel_lab.data.augmentation.intensity import (
    NormalizeChannels,
    RandomBrightness,
    RandomContrast,
    Standardize,
    ToUnit,
)
from deepbilevel_lab.data.augmentation.permutation import Split, permute_pixels
from deepbilevel_lab.data.augmentation.step import Draws, DrawsOfPart, Step

__all__ = [
    "CenterCrop",
    "Draws",
    "DrawsOfPart",
    "HorizontalFlip",
    "NormalizeChannels",
    "PadAndCrop",
    "RandomBrightness",
    "RandomContrast",
    "Split",
    "Standardize",
    "Step",
    "ToUnit",
    "permute_pixels",
]
