"""What predictions for images set aside say: which of two methods is better, and how many labels are wrong.

This module sees probabilities and labels. It knows no run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
_Z = 1.96  # of a 95 % interval
_T = {2: 12.706, 3: 4.303, 4: 3.182}  # the same if so many runs tell how much runs differ (Student's t)
_MOST_RUNS = 4  # more are taken for four


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval, in percent; ``runs`` is the number of runs that it is drawn from, if few."""

    value: float
    low: float
    high: float
    runs: int | None = None

    @property
    def chance_above_zero(self) -> float:
        """How probable it is that the true value is above zero.

        >>> round(Interval(1.96, 0.0, 3.92).chance_above_zero, 3)
        0.975
        >>> round(Interval(3.18, 0.0, 6.36, runs=4).chance_above_zero, 3)
        0.975
        """
        deviation = (self.high - self.low) / 2 / _quantile(self.runs)
        if deviation == 0:
            return 0.5 * (1 + (self.value > 0) - (self.value < 0))
        if not math.isfinite(deviation):
            return 0.5
        return _student(self.value / deviation, self.runs) if self.runs else NormalDist().cdf(self.value / deviation)

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


def _quantile(runs: int | None) -> float:
    return _Z if runs is None else _T[min(runs, _MOST_RUNS)]


def _student(x: float, runs: int) -> float:
    """Return how much of Student's t distribution lies below ``x``, with one degree of freedom less than runs."""
    if runs == 2:
        return 0.5 + math.atan(x) / math.pi
    if runs == 3:
        return 0.5 + x / (2 * math.sqrt(2 + x * x))
    u = x / math.sqrt(3)
    return 0.5 + (u / (1 + u * u) + math.atan(u)) / math.pi


def paired_difference(ours: Floats, theirs: Floats, by_run: Sequence[float] = ()) -> Interval:
    """Return by how much the first is right more often than the second, sample by sample.

    Pairing takes out what both find hard. The interval is that of a mean over samples drawn at random; if the runs
    differ by more than their samples explain, it is wide enough for that as well.

    >>> ours, theirs = np.array([1.0, 1, 1, 0] * 25), np.array([1.0, 0, 1, 0] * 25)
    >>> print(paired_difference(ours, theirs))
    25.0 (16.5 to 33.5)
    >>> print(paired_difference(ours, theirs, by_run=[0.5, 0.25, 0.0]))
    25.0 (-37.1 to 87.1)

    Args:
        ours: for each sample how often it was right, a mean over runs.
        theirs: the same for the other method.
        by_run: the difference of each pair of runs, as a share.
    """
    differences = 100 * (ours - theirs)
    mean = float(differences.mean())
    margin = _Z * differences.std(ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    runs = None
    if len(by_run) > 1:
        # What chance does to the samples of a run is part of how much runs differ, so the larger margin has both.
        deviation = float(np.std(np.multiply(100, by_run), ddof=1)) / math.sqrt(len(by_run))
        if _quantile(len(by_run)) * deviation > margin:
            runs = min(len(by_run), _MOST_RUNS)
            margin = _quantile(runs) * deviation
    return Interval(mean, float(mean - margin), float(mean + margin), runs)


def by_sample(right: Sequence[Floats], numbers: Sequence[Numbers]) -> Floats:
    """Return how often each sample was right, from what several runs say of the samples they did not train on.

    >>> by_sample([np.array([1.0, 0.0]), np.array([0.0, 1.0])], [np.array([7, 3]), np.array([7, 4])])
    array([0. , 1. , 0.5])

    Args:
        right: of each run, 1 where it was right about a sample.
        numbers: of each run, which samples these are: two statements about one sample are no independent evidence.
    """
    _, places = np.unique(np.concatenate(numbers), return_inverse=True)
    return np.bincount(places, weights=np.concatenate(right)) / np.bincount(places)


def noise_rate(probabilities: Floats, labels: Numbers) -> Interval | None:
    """Return how many labels look wrong, from predictions of a network that was not trained on them.

    A label counts as wrong if another class is predicted with at least the confidence that images labelled as that
    class have on average (Northcutt et al. 2021, confident learning), among images that some class is confident of.
    None if there are none. Wrong labels that the network has learned to predict are not counted, and right ones that it
    has not learned are: this is how many labels look wrong to it.

    Args:
        probabilities: shape ``[images, classes]``.
        labels: as given.
    """
    classes = probabilities.shape[1]
    present = [number for number in range(classes) if (labels == number).any()]
    thresholds = np.full(classes, np.inf)
    for number in present:
        thresholds[number] = probabilities[labels == number, number].mean()
    confident = probabilities >= thresholds
    counted = confident.any(axis=1)
    if not counted.any():
        return None
    believed = np.where(confident, probabilities, -1.0).argmax(axis=1)
    count = int(counted.sum())
    share = float((believed != labels)[counted].mean())
    # Wilson's interval stays within 0 .. 1 and is sound for few images.
    centre = (share + _Z**2 / (2 * count)) / (1 + _Z**2 / count)
    margin = _Z * math.sqrt(share * (1 - share) / count + _Z**2 / (4 * count**2)) / (1 + _Z**2 / count)
    return Interval(100 * share, 100 * (centre - margin), 100 * (centre + margin))
