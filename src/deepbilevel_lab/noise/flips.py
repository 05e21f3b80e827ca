"""Label noise that needs nothing but labels: uniform, symmetric, pair, or given by a matrix.

Uniform, symmetric and pair noise give a new label to exactly the same share of every class; they differ in what that
label is. A matrix gives the probability of every label for every true class.
"""

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.noise.noisy_labels import (
    Labels,
    Mask,
    NoisyLabels,
    random_numbers,
    read_labels,
    read_num_classes,
    read_rate,
)

_TOLERANCE = 1e-5  # what the softmax of a thousand classes in float32 may miss one by


def flip_uniformly(clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Flip exactly ``int(rate * n_c)`` labels of every class to one of the other classes, each equally likely.

    This is the noise of the paper.

    At ``rate = 1 - 1 / num_classes`` the labels say nothing about the images any more.

    >>> noisy = flip_uniformly([0, 0, 1, 1, 2, 2], 0.5, num_classes=3, seed=0)
    >>> noisy.rates_per_class.tolist()
    [0.5, 0.5, 0.5]
    """
    num_classes, random = read_num_classes(num_classes), random_numbers(seed)
    clean = read_labels(clean_labels, num_classes)
    chosen = _choose_share(clean, rate, num_classes, random)
    # A shift by 1 .. num_classes - 1 reaches every other class and never the same one.
    shifts = random.randint(1, max(num_classes, 2), size=len(clean), dtype=np.int64)
    return NoisyLabels(np.where(chosen, (clean + shifts) % num_classes, clean), clean, num_classes)


def flip_symmetrically(clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Draw exactly ``int(rate * n_c)`` labels of every class anew, all classes equally likely, the old one included.

    This is what most other papers call noise of that rate.

    About ``rate / num_classes`` of the labels are drawn anew and stay right: with ten classes, the "40 %" of a paper
    that makes its noise in this way is 36 % wrong. ``NoisyLabels.rate`` says what it came to.

    >>> noisy = flip_symmetrically([0, 1] * 500, 0.4, num_classes=2, seed=0)
    >>> noisy.rate
    0.193
    """
    num_classes, random = read_num_classes(num_classes), random_numbers(seed)
    clean = read_labels(clean_labels, num_classes)
    chosen = _choose_share(clean, rate, num_classes, random)
    drawn = random.randint(0, num_classes, size=len(clean), dtype=np.int64)
    return NoisyLabels(np.where(chosen, drawn, clean), clean, num_classes)


def flip_to_next(clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Flip exactly ``int(rate * n_c)`` labels of every class c to the next class, ``(c + 1) % num_classes``.

    This models an annotator who confuses neighbouring classes.

    Above a rate of one half most labels of every class name its neighbour, and nothing in the data tells the two apart.

    >>> flip_to_next([0, 0, 1, 1, 2, 2], 0.5, num_classes=3, seed=0).labels.tolist()
    [0, 1, 2, 1, 0, 2]
    """
    num_classes, random = read_num_classes(num_classes), random_numbers(seed)
    clean = read_labels(clean_labels, num_classes)
    chosen = _choose_share(clean, rate, num_classes, random)
    return NoisyLabels(np.where(chosen, (clean + 1) % num_classes, clean), clean, num_classes)


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


def _choose_share(clean_labels: Labels, rate: float, num_classes: int, random: np.random.RandomState) -> Mask:
    """Choose exactly ``int(rate * n_c)`` of the ``n_c`` images of every class c, each equally likely.

    With the same random numbers a higher rate chooses the same images and further ones.
    """
    rate = read_rate(rate)
    if num_classes < 2 and rate > 0:
        raise ValueError(f"num_classes must be at least 2 to flip labels, got {num_classes}; or pass rate=0")
    chosen = np.zeros(len(clean_labels), dtype=bool)
    for label in range(num_classes):
        members = np.flatnonzero(clean_labels == label)
        chosen[random.permutation(members)[: int(rate * len(members))]] = True
    return chosen
