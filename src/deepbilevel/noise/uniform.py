"""Label noise as in the paper: in every class the same share of labels becomes one of the other classes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class NoisyLabels:
    """Labels of which some are wrong, and the mask ``flipped`` that says which."""

    labels: Labels
    flipped: npt.NDArray[np.bool_]


def flip_uniformly(clean_labels: Labels, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Flip exactly ``int(rate * n_c)`` labels of every class to one of the other classes, each equally likely.

    >>> noisy = flip_uniformly(np.array([0, 0, 1, 1, 2, 2]), 0.5, num_classes=3, seed=0)
    >>> int(noisy.flipped.sum())
    3
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate}")
    if num_classes < 2 and rate > 0:
        raise ValueError(f"num_classes must be at least 2 to flip labels, got {num_classes}")
    clean_labels = np.asarray(clean_labels)
    if clean_labels.ndim != 1 or clean_labels.dtype.kind not in "iu":
        raise TypeError(
            f"clean_labels must be one class number per image, got shape {clean_labels.shape} of {clean_labels.dtype}"
        )
    # A label outside the range would silently never be flipped.
    if not np.isin(clean_labels, np.arange(num_classes)).all():
        raise ValueError(
            f"clean_labels must lie in 0 .. num_classes - 1 = {num_classes - 1}, got {clean_labels.min()} to "
            f"{clean_labels.max()}"
        )
    random = np.random.RandomState(seed)  # its streams never change between versions of numpy
    flipped = np.zeros(len(clean_labels), dtype=bool)
    for label in range(num_classes):
        members = np.flatnonzero(clean_labels == label)
        flipped[random.permutation(members)[: int(rate * len(members))]] = True
    # A shift by 1 .. num_classes - 1 reaches every other class and never the same one.
    shifts = random.randint(1, max(num_classes, 2), size=len(clean_labels))
    return NoisyLabels(np.where(flipped, (clean_labels + shifts) % num_classes, clean_labels), flipped)
