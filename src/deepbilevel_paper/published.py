"""The numbers the paper prints, and nothing else: what its figures only draw is not here.

Percent throughout: accuracy on the labels as given (train), on clean test images (test), and the difference (gap).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A result as it was printed.

    Attributes:
        row: the method, as our tables name it.
        column: on what.
        network: where the paper names another network than the column does.
        source: who measured it, where it was not the paper's authors.
        doubtful: why this figure is not to be aimed at.
    """

    row: str
    column: str
    test: float
    train: float | None = None
    gap: float | None = None
    network: str | None = None
    source: str | None = None
    doubtful: str | None = None

    @property
    def num_figures(self) -> int:
        """How many numbers stand in print for it."""
        return sum(figure is not None for figure in (self.train, self.test, self.gap))


_COPIED = "repeats the figures of CifarNet in the same row, digit by digit: a slip of copying"

_CIFARNET_CLEAN, _CIFARNET_NOISY = "CifarNet, clean", "CifarNet, 50 % noise"
_INCEPTION_CLEAN, _INCEPTION_NOISY = "Inception, clean", "Inception, 50 % noise"


def _clean(row: str, column: str, train: float, test: float, gap: float) -> Published:
    return Published(row, column, test, train=train, gap=gap)


def _noisy(row: str, column: str, train: float, test: float, doubtful: str | None = None) -> Published:
    return Published(row, column, test, train=train, doubtful=doubtful)


TABLE_1 = (
    _clean("SGD", _CIFARNET_CLEAN, 99.99, 75.68, 24.31),
    _clean("Baseline", _CIFARNET_CLEAN, 97.60, 75.52, 22.08),
    _clean("a) no L1", _CIFARNET_CLEAN, 96.44, 74.32, 22.12),
    _clean("b) weights per layer", _CIFARNET_CLEAN, 97.43, 74.36, 23.07),
    _clean("c) sampling", _CIFARNET_CLEAN, 72.69, 68.19, 4.50),
    _clean("d) dropout", _CIFARNET_CLEAN, 95.92, 74.76, 21.16),
    _noisy("SGD", _CIFARNET_NOISY, 96.75, 45.15),
    _noisy("Baseline", _CIFARNET_NOISY, 89.28, 47.62),
    _noisy("a) no L1", _CIFARNET_NOISY, 95.50, 45.79),
    _noisy("b) weights per layer", _CIFARNET_NOISY, 81.60, 49.62),
    _noisy("c) sampling", _CIFARNET_NOISY, 16.13, 23.93),
    _noisy("d) dropout", _CIFARNET_NOISY, 82.22, 49.23),
    _clean("SGD", _INCEPTION_CLEAN, 99.91, 88.13, 11.78),
    _clean("Baseline", _INCEPTION_CLEAN, 96.13, 87.78, 8.35),
    _clean("a) no L1", _INCEPTION_CLEAN, 79.46, 77.07, 2.39),
    _clean("b) weights per layer", _INCEPTION_CLEAN, 90.38, 85.25, 5.13),
    _clean("c) sampling", _INCEPTION_CLEAN, 79.78, 78.25, 1.53),
    _clean("d) dropout", _INCEPTION_CLEAN, 95.58, 87.86, 7.72),
    _noisy("SGD", _INCEPTION_NOISY, 65.06, 47.64),
    _noisy("Baseline", _INCEPTION_NOISY, 45.43, 73.08),
    _noisy("a) no L1", _INCEPTION_NOISY, 33.86, 62.16),
    _noisy("b) weights per layer", _INCEPTION_NOISY, 81.60, 49.62, doubtful=_COPIED),
    _noisy("c) sampling", _INCEPTION_NOISY, 17.71, 27.20),
    _noisy("d) dropout", _INCEPTION_NOISY, 44.61, 75.71),
)

_PERMUTED = "Inception, permuted pixels"

PIXEL_PERMUTATION = (
    _clean("SGD", _PERMUTED, 50.0, 33.2, 16.8),
    _clean("Bilevel", _PERMUTED, 34.8, 33.6, 1.2),
)


def _compared(
    row: str, cifar10: float, cifar100: float | None, network: str = "PreAct ResNet-18", source: str | None = None
) -> tuple[Published, ...]:
    columns = {"CIFAR-10": cifar10, "CIFAR-100": cifar100}
    return tuple(
        Published(row, column, test, network=network, source=source)
        for column, test in columns.items()
        if test is not None
    )


_MENTORNET = "Jiang et al. 2017, arXiv:1712.05055"

COMPARISON_40 = (
    *_compared("Reed et al.", 62.3, 46.5, "ResNet", _MENTORNET),
    *_compared("Goldberger et al.", 69.9, 45.8, "ResNet", _MENTORNET),
    *_compared("Azadi et al.", 75.0, None, "AlexNet", "Azadi et al. 2015, arXiv:1511.07069"),
    *_compared("Jiang et al. (MentorNet)", 76.6, 56.9, "ResNet", _MENTORNET),
    *_compared("Zhang et al. (mixup)", 88.3, 56.4),
    *_compared("SGD", 69.6, 44.9),
    *_compared("Dropout, keep 0.3", 84.5, 50.1),
    *_compared("Label smoothing 0.1", 69.3, 46.1),
    *_compared("Bilevel", 87.0, 59.8),
    *_compared("Bilevel + mixup", 89.0, 61.6),
)

IMAGENET = (
    Published("SGD", "44 % noise", 50.75),
    Published("SGD", "clean", 57.4),
    Published("Bilevel", "44 % noise", 52.69),
    Published("Bilevel", "clean", 58.2),
)

_PATRINI = "Patrini et al. 2016, arXiv:1609.03683"

CLOTHING1M = (
    Published("Bilevel", "noisy labels", 69.9),
    Published("Bilevel", "then clean labels", 79.9),
    Published("Patrini et al.", "noisy labels", 69.8, source=_PATRINI),
    Published("Patrini et al.", "then clean labels", 80.4, source=_PATRINI),
)
