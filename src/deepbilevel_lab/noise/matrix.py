"""Label noise whose directions are given: one row of probabilities per true class."""

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.noise.arguments import random_numbers, read_labels
from deepbilevel_lab.noise.noisy_labels import NoisyLabels

_TOLERANCE = 1e-5  # what the softmax of a thousand classes in float32 may miss one by


def flip_by_matrix(clean_labels: npt.ArrayLike, matrix: npt.ArrayLike, *, seed: int) -> NoisyLabels:
    """Draw every label from the row of its true class: ``matrix[i, j] = P(label j | true label i)``.

    Each label is drawn on its own, so counts vary around their expectation; the rate of class i is about
    ``1 - matrix[i, i]``. A label whose probability is zero never occurs.

    >>> cats_look_like_dogs = [[0.7, 0.3], [0.0, 1.0]]
    >>> flip_by_matrix([0, 0, 0, 0, 1, 1, 1, 1], cats_look_like_dogs, seed=0).labels.tolist()
    [0, 1, 0, 0, 1, 1, 1, 1]
    """
    rows = _read_matrix(matrix)
    clean = read_labels(clean_labels, len(rows))
    edges = np.cumsum(rows, axis=1)
    edges /= edges[:, -1:]  # the last edge is now exactly 1, which no random number reaches
    points = random_numbers(seed).random_sample(len(clean))
    labels = clean.copy()
    for label, row in enumerate(edges):
        members = np.flatnonzero(clean == label)
        labels[members] = np.searchsorted(row, points[members], side="right")
    return NoisyLabels(labels, clean, len(rows))


def _read_matrix(matrix: npt.ArrayLike) -> npt.NDArray[np.float64]:
    try:
        rows = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"matrix must hold numbers, in rows of equal length: {error}") from error
    if rows.ndim != 2 or len(rows) != len(rows.T) or not len(rows):
        raise ValueError(f"matrix must be square, one row and one column per class, got shape {rows.shape}")
    bad = ~(np.isfinite(rows) & (rows >= 0))
    if bad.any():
        i, j = np.argwhere(bad)[0]
        raise ValueError(f"matrix must hold probabilities, got {rows[i, j]} at [{i}, {j}]")
    sums = rows.sum(axis=1)
    if not np.allclose(sums, 1, rtol=0, atol=_TOLERANCE):
        worst = int(np.abs(sums - 1).argmax())
        columns = "; its columns do: pass the transpose" if np.allclose(rows.sum(axis=0), 1, atol=_TOLERANCE) else ""
        raise ValueError(f"matrix must have rows that sum to 1, row {worst} sums to {sums[worst]:g}{columns}")
    return rows
