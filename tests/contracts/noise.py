"""What every noise promises, as a battery: it runs over the catalog, and over noise from a matrix and from a model.

A new kind passes by a line in ``NOISES``; what it promises beyond the contract is data beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.noise import CATALOG, NoisyLabels, flip_by_matrix, flip_by_model


@dataclass(frozen=True)
class Promises:
    """A noise as ``(clean_labels, rate, *, num_classes, seed)``, and what it promises.

    Attributes:
        flip: the noise.
        exact_per_class: exactly ``int(rate * n_c)`` labels of every class become wrong.
        exact_in_all: exactly ``int(rate * n)`` labels become wrong.
        nested: a higher rate keeps the labels a lower one made wrong.
        expected_rate: of this rate and number of classes, which share becomes wrong on average.
    """

    flip: Callable[..., NoisyLabels]
    exact_per_class: bool = False
    exact_in_all: bool = False
    nested: bool = True
    expected_rate: Callable[[float, int], float] = lambda rate, _: rate


def by_matrix(clean_labels, rate, *, num_classes, seed):
    """Draw from the matrix whose diagonal is ``1 - rate``; the other classes are equally likely."""
    others = 1 - np.eye(num_classes)
    return flip_by_matrix(clean_labels, (1 - rate) * np.eye(num_classes) + rate * others / (num_classes - 1), seed=seed)


def by_model(clean_labels, rate, *, num_classes, seed):
    """Predict with an untrained network from images that show their class."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(num_classes, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, num_classes))
    images = F.one_hot(torch.as_tensor(np.asarray(clean_labels), dtype=torch.int64), num_classes).float()
    return flip_by_model(clean_labels, rate, model=model, images=images, num_classes=num_classes, seed=seed)


NOISES = {
    "uniform": Promises(CATALOG["uniform"], exact_per_class=True),
    "symmetric": Promises(CATALOG["symmetric"], expected_rate=lambda rate, classes: rate * (classes - 1) / classes),
    "pair": Promises(CATALOG["pair"], exact_per_class=True),
    "matrix": Promises(by_matrix, nested=False),
    "model": Promises(by_model, exact_in_all=True),
}

every_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)

sizes_of_classes = st.lists(st.integers(0, 40), min_size=2, max_size=6)
rates = st.floats(0, 1)
seeds = st.integers(0, 2**32 - 1)


def clean_labels_of(sizes: list[int], seed: int = 0) -> np.ndarray:
    """Return ``sizes[c]`` labels of each class c, in an order that has nothing to do with the class."""
    return np.random.RandomState(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


def confusion_of(noisy: NoisyLabels) -> np.ndarray:
    """Count how often class i got label j, as a matrix ``[i, j]``."""
    counts = np.zeros((noisy.num_classes, noisy.num_classes), dtype=np.int64)
    np.add.at(counts, (noisy.clean_labels, noisy.labels), 1)
    return counts


def chi_square(counts: np.ndarray, expected: np.ndarray | float) -> float:
    """Return how far counts lie from their expectation; compare with a quantile of as many degrees of freedom."""
    return float(((counts - expected) ** 2 / expected).sum())


def assert_consistent(noisy: NoisyLabels, clean_labels: np.ndarray, num_classes: int) -> None:
    """Assert what holds for every noise at every rate."""
    assert noisy.num_classes == num_classes
    assert noisy.labels.dtype == noisy.clean_labels.dtype == np.int64
    assert noisy.labels.shape == clean_labels.shape
    assert np.isin(noisy.labels, np.arange(num_classes)).all()
    np.testing.assert_array_equal(noisy.clean_labels, clean_labels)
    np.testing.assert_array_equal(noisy.flipped, noisy.labels != clean_labels)
    for label, rate in enumerate(noisy.rates_per_class):
        members = clean_labels == label
        assert np.isnan(rate) if not members.any() else rate == np.mean(noisy.labels[members] != label)
