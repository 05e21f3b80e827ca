"""Made pictures, for trying things out: every class has a coarse coloured pattern of its own, under noise.

A picture follows from its class and its number alone, on every machine. So nobody can pass other images off as made.
"""

import numpy as np
import numpy.typing as npt

_TILES = 4  # of a pattern, along each side


def make_picture(class_number: int, number: int, *, width: int = 40, height: int = 30) -> npt.NDArray[np.uint8]:
    """Return a picture of a class, ``[height, width, 3]``: the pattern of the class under noise of its own.

    >>> make_picture(3, 0).shape
    (30, 40, 3)
    """
    pattern = np.random.RandomState(class_number).randint(40, 216, (_TILES, _TILES, 3))
    rows, columns = (np.arange(size) * _TILES // size for size in (height, width))
    noise = np.random.RandomState((class_number, number)).randint(-40, 40, (height, width, 3))
    return (pattern[rows][:, columns] + noise).astype(np.uint8)


def make_rows(labels: list[int], first: int) -> npt.NDArray[np.uint8]:
    """Return pictures of these classes, numbered from ``first``, as CIFAR stores them: ``[images, 3072]``."""
    pictures = [make_picture(label, first + i, width=32, height=32) for i, label in enumerate(labels)]
    return np.stack(pictures).transpose(0, 3, 1, 2).reshape(len(labels), -1)
