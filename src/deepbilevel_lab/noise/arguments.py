"""Reading the arguments of a noise: a refusal names the argument, its value and what to pass instead.

This module knows what labels, rates and seeds look like; it does not know what is done with them.
"""

from numbers import Real

import numpy as np
import numpy.typing as npt

Labels = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_LARGEST_SEED = 2**32 - 1


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
