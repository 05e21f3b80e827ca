"""The 1,797 handwritten digits that scikit-learn ships: real images that need no download."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

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
