"""Refusing numbers that cannot be, for a step and its spec alike. Knows no method."""

from numbers import Real


def check_between(name: str, value: float, least: float, most: float, *, remedy: str) -> float:
    """Return a number that lies in ``least .. most``, as a float.

    >>> check_between("threshold", 1.5, 0, 1, remedy="the usual value is 0.5")
    Traceback (most recent call last):
    ValueError: threshold must lie in 0 .. 1, got 1.5; the usual value is 0.5
    """
    if isinstance(value, bool) or not isinstance(value, Real):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not least <= value <= most:
        raise ValueError(f"{name} must lie in {least} .. {most}, got {value!r}; {remedy}")
    return float(value)


def check_threshold(value: float) -> float:
    """Return a threshold of the AND-mask that can be."""
    return check_between("threshold", value, 0, 1, remedy="1 asks all mini-batches to agree, 0.5 three of four")


def check_floor(value: float) -> float:
    """Return a smallest factor of GSNR weighting that can be."""
    return check_between("floor", value, 0, 1, remedy="its authors take 0.1, and 1 is plain averaging")


def check_distance(value: float) -> float:
    """Return a cosine distance that can be."""
    return check_between("max_cosine_distance", value, 0, 2, remedy="its authors recommend 0.9 to 1")
