"""What every noise returns: the labels as given, the true ones, and what follows from the two.

This module knows how wrong labels are; it does not know how they became wrong.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.noise.arguments import Labels, Mask, read_labels, read_num_classes

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
