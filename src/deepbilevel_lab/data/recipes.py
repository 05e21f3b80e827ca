"""How a network gets to see its images: recipes of small steps, and the catalog of those the experiments use.

This module knows which steps follow each other; what a step does is written in ``augmentation.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from torch import Tensor

from deepbilevel.checks import choose
from deepbilevel_lab.data.augmentation import (
    CenterCrop,
    Draws,
    HorizontalFlip,
    NormalizeChannels,
    PadAndCrop,
    RandomContrast,
    Split,
    Standardize,
    Step,
    ToUnit,
    check_images,
)
from deepbilevel_lab.data.permutation import permute_pixels

Mode = Literal["train", "test"]


@dataclass(frozen=True)
class Recipe:
    """What happens to images before a network sees them, as data.

    Attributes:
        train: the steps of training, in their order.
        test: the steps of evaluation.
        permutation_seed: where given, the pixels of every image are first put into an order of its own, fixed for the
            whole run.

    >>> import torch
    >>> images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
    >>> find_recipe("inception").apply("train", images, torch.Generator().manual_seed(0)).shape
    torch.Size([8, 3, 29, 29])
    """

    train: tuple[Step, ...]
    test: tuple[Step, ...]
    permutation_seed: int | None = None

    def apply(
        self,
        mode: Mode,
        images: Tensor,
        generator: Draws | None = None,
        *,
        indices: Tensor | None = None,
        split: Split | None = None,
    ) -> Tensor:
        """Return the images as the network shall see them: float32, on the device they are on.

        Args:
            mode: which steps to take. Accuracy on training images is measured in the mode ``"test"``.
            images: ``[N, C, H, W]``, uint8 or floating point.
            generator: where random steps draw from; on the CPU, wherever the images are. :class:`DrawsOfPart` where
                these are some images of a batch and the others are prepared elsewhere.
            indices: the number of each image in its data set; needed where pixels are permuted, else ignored.
            split: the data set in which ``indices`` count; needed where pixels are permuted, else ignored.
        """
        if mode not in ("train", "test"):
            raise ValueError(f"mode must be 'train' or 'test', got {mode!r}; it says which steps of the recipe to take")
        check_images(images)
        if self.permutation_seed is not None:
            if indices is None or split is None:
                raise ValueError(
                    f"indices and split must be given where pixels are permuted, got {indices} and {split}; pass the "
                    "numbers of the images and the data set they count in"
                )
            images = permute_pixels(images, indices, seed=self.permutation_seed, split=split)
        for step in self.train if mode == "train" else self.test:
            images = step(images, generator)
        return images.float()


def permuted(recipe: Recipe, seed: int) -> Recipe:
    """Return the recipe for images whose pixels are in random order, which leaves nothing to learn but by heart."""
    return replace(recipe, permutation_seed=seed)


def inception(size: int) -> Recipe:
    """Return the recipe of the small Inception network for crops of the given size.

    Random brightness, which belongs to it by tradition, is left out: standardising takes it out again.
    """
    return Recipe(
        train=(PadAndCrop(padding=4, size=size), HorizontalFlip(), RandomContrast(0.2, 1.8), Standardize()),
        test=(CenterCrop(size), Standardize()),
    )


def preact(normalize: NormalizeChannels) -> Recipe:
    """Return the recipe of the PreAct ResNet, given the channels' statistics of the data set."""
    return Recipe(
        train=(PadAndCrop(padding=4, size=32), HorizontalFlip(), ToUnit(), normalize),
        test=(ToUnit(), normalize),
    )


CIFAR10_CHANNELS = NormalizeChannels(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
CIFAR100_CHANNELS = NormalizeChannels(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))

IMAGENET_CHANNELS = NormalizeChannels(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))

_IMAGENET_STEPS = (ToUnit(), IMAGENET_CHANNELS)
_CIFARNET_STEPS = (CenterCrop(28), Standardize())

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "none": Recipe(train=(ToUnit(),), test=(ToUnit(),)),
        "cifarnet": Recipe(train=_CIFARNET_STEPS, test=_CIFARNET_STEPS),
        "imagenet": Recipe(train=_IMAGENET_STEPS, test=_IMAGENET_STEPS),  # crops and flips are views of the file
        "inception": inception(29),
        "inception-28": inception(28),
        "pixel-permutation": permuted(inception(29), seed=0),
        "preact": preact(CIFAR10_CHANNELS),
        "preact-cifar100": preact(CIFAR100_CHANNELS),
    }
)


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name."""
    return RECIPES[choose("recipe", name, RECIPES)]
