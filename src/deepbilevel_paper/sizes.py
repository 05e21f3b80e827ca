"""How many images the published data sets have, so that the cost of a run is known before its data is there."""

from collections.abc import Mapping
from types import MappingProxyType

from deepbilevel_lab.data.spec import DataSpec

IMAGES: Mapping[tuple[str, str], int] = MappingProxyType(
    {
        ("cifar10", "train"): 50_000,
        ("cifar10", "test"): 10_000,
        ("cifar100", "train"): 50_000,
        ("cifar100", "test"): 10_000,
        ("voc2007", "trainval"): 5_011,
        ("voc2007", "test"): 4_952,
        ("imagenet", "train"): 1_281_167,
        ("imagenet", "val"): 50_000,
        # As in the lists that are given out; the paper rounds them.
        ("clothing1m", "noisy_train"): 1_000_000,
        ("clothing1m", "clean_train"): 47_570,
        ("clothing1m", "clean_val"): 14_313,
        ("clothing1m", "clean_test"): 10_526,
    }
)


def trained_images(data: DataSpec) -> int:
    """Return how many images a run trains on."""
    return _limited(IMAGES[data.name, data.train_split], data.limit)


def rated_images(data: DataSpec) -> int:
    """Return of how many images the figures of training are."""
    return _limited(IMAGES[data.name, data.train_split], data.limit if data.train_figures == "trained" else None)


def tested_images(data: DataSpec) -> int:
    """Return how many images a run is tested on."""
    return _limited(IMAGES[data.name, data.entry.test_split or ""], data.test_limit)


def _limited(count: int, limit: int | None) -> int:
    return count if limit is None else min(limit, count)
