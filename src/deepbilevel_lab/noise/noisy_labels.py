"""What every noise returns, and how its arguments are checked.

:class:`NoisyLabels` holds the labels as given and the true ones. The ``read_...`` functions check labels, rates and
seeds; an error names the argument, its value and what to pass instead. How labels become wrong is not known here.
"""

from dataclasses import dataclass
from numbers import Real

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LARGEST_SEED = 2**32 - 1
_MOST_CLASSES_IN_A_LINE = 12


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels of which some are wrong, beside the truth. Holds copies: changing them changes nothing elsewhere.

    >>> noisy = NoisyLabels(labels=[0, 1, 1, 1], clean_labels=[0, 0, 1, 1], num_classes=2)
    >>> noisy.flipped.tolist(), noisy.rates_per_class.tolist()
    ([False, True, False, False], [0.5, 0.0])
    >>> noisy.describe()
    '25.0 % of 4 labels are wrong; by class 0: 50.0 %, 1: 0.0 %'
    """

    labels: Labels
    clean_labels: Labels
    num_classes: int

    def __post_init__(self) -> None:
        num_classes = read_num_classes(self.num_classes)
        labels = read_labels(self.labels, num_classes, name="labels")
        clean_labels = read_labels(self.clean_labels, num_classes)
        if len(labels) != len(clean_labels):
            raise ValueError(
                f"labels and clean_labels must belong to the same images, got {len(labels)} and {len(clean_labels)}"
            )
        object.__setattr__(self, "num_classes", num_classes)
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "clean_labels", clean_labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def flipped(self) -> Mask:
        """Which labels are wrong. It follows from the labels, so it cannot contradict them."""
        return self.labels != self.clean_labels

    @property
    def rate(self) -> float:
        """The realised rate: which share of all labels is wrong; nan without labels."""
        return float(self.flipped.mean()) if len(self) else float("nan")

    @property
    def rates_per_class(self) -> npt.NDArray[np.float64]:
        """The realised rate of each class, by true label, shape ``[num_classes]``; nan where a class has no image."""
        sizes = np.bincount(self.clean_labels, minlength=self.num_classes)
        wrong = np.bincount(self.clean_labels[self.flipped], minlength=self.num_classes)
        return np.where(sizes > 0, wrong / np.maximum(sizes, 1), np.nan)

    def describe(self) -> str:
        """Say in one line how many labels are wrong, over all and by class."""
        if not len(self):
            return "no labels"
        rates = self.rates_per_class
        if self.num_classes <= _MOST_CLASSES_IN_A_LINE:
            by_class = ", ".join(
                f"{label}: no images" if np.isnan(rate) else f"{label}: {100 * rate:.1f} %"
                for label, rate in enumerate(rates)
            )
        else:
            low, high = int(np.nanargmin(rates)), int(np.nanargmax(rates))
            by_class = f"from {100 * rates[low]:.1f} % (class {low}) to {100 * rates[high]:.1f} % (class {high})"
        return f"{100 * self.rate:.1f} % of {len(self):,} labels are wrong; by class {by_class}"


def read_num_classes(num_classes: object) -> int:
    """Return ``num_classes`` as an int, if it is a count."""
    if isinstance(num_classes, bool) or not isinstance(num_classes, int | np.integer):
        raise TypeError(f"num_classes must be a whole number, got {num_classes!r}; pass e.g. 10")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    return int(num_classes)


def read_labels(labels: npt.ArrayLike, num_classes: int, *, name: str = "clean_labels") -> Labels:
    """Return a copy of ``labels``, one class out of ``0 .. num_classes - 1`` per image; ``name`` is for errors."""
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise TypeError(f"{name} must be one class number per image: {error}") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must be one class number per image, got shape {array.shape} of {array.dtype}; pass a list, an "
            "array or a tensor of whole numbers with one dimension"
        )
    # A label outside the range would silently never be flipped.
    if array.size and (array.min() < 0 or array.max() >= num_classes):
        raise ValueError(
            f"{name} must lie in 0 .. num_classes - 1 = {num_classes - 1}, got {array.min()} to {array.max()}; number "
            "the classes from 0, or correct num_classes"
        )
    return array.astype(np.int64)


def read_rate(rate: object) -> float:
    """Return ``rate`` as a float, if it is a share."""
    if not isinstance(rate, Real):
        raise TypeError(f"rate must be a number between 0 and 1, got {rate!r}")
    share = float(rate)
    if not 0 <= share <= 1:
        remedy = f"; for {share:g} % pass {share / 100:g}" if 1 < share <= 100 else ""
        raise ValueError(f"rate must lie between 0 and 1, got {rate}{remedy}")
    return share


def read_seed(seed: object) -> int:
    """Return ``seed`` as an int, if every generator takes it; ``None``, which numpy would take, is no seed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed must be a whole number, got {seed!r}; noise nobody can make again is of no use")
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"seed must lie between 0 and 2**32 - 1, got {seed}")
    return int(seed)


def random_numbers(seed: int) -> np.random.RandomState:
    """Return the random numbers of a seed: streams that never change between versions of numpy."""
    return np.random.RandomState(read_seed(seed))
