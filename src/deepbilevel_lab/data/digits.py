"""The 1,797 handwritten digits that scikit-learn ships: real images that need no download."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from deepbilevel_lab.data.image_set import ImagesInMemory

_TRAIN_RATE = 0.75


@dataclass(frozen=True)
class Digits:
    """8x8 grey images in ``[0, 1]``, shape ``[images, 1, 8, 8]``, split into training and test images."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def load_digits(seed: int = 0) -> Digits:
    """Load the digits and split them at random, three quarters for training.

    >>> digits = load_digits()
    >>> len(digits.train_images), len(digits.test_images)
    (1347, 450)
    """
    try:
        from sklearn import datasets  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn; run: pip install 'deepbilevel[cli]'") from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    images = torch.from_numpy(np.asarray(pixels, dtype=np.float32) / 16).reshape(-1, 1, 8, 8)
    classes = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(images)))
    train, test = order.split([int(_TRAIN_RATE * len(order)), len(order) - int(_TRAIN_RATE * len(order))])
    return Digits(images[train], classes[train], images[test], classes[test])


def load_digits_split(directory: Path, split: str) -> ImagesInMemory:
    """Return the digits as a data set of the catalog; they need no directory."""
    digits = load_digits()
    images, labels = {
        "train": (digits.train_images, digits.train_labels),
        "test": (digits.test_images, digits.test_labels),
    }[split]
    return ImagesInMemory(images=(images * 255).round().to(torch.uint8), labels=labels, class_names=tuple("0123456789"))
