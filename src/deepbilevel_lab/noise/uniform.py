"""Label noise as in the paper: in every class the same share of labels becomes one of the other classes."""

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.noise.arguments import random_numbers, read_labels, read_num_classes
from deepbilevel_lab.noise.noisy_labels import NoisyLabels
from deepbilevel_lab.noise.shares import choose_share


def flip_uniformly(clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Flip exactly ``int(rate * n_c)`` labels of every class to one of the other classes, each equally likely.

    At ``rate = 1 - 1 / num_classes`` the labels say nothing about the images any more.

    >>> noisy = flip_uniformly([0, 0, 1, 1, 2, 2], 0.5, num_classes=3, seed=0)
    >>> noisy.rates_per_class.tolist()
    [0.5, 0.5, 0.5]
    """
    num_classes, random = read_num_classes(num_classes), random_numbers(seed)
    clean = read_labels(clean_labels, num_classes)
    chosen = choose_share(clean, rate, num_classes, random)
    # A shift by 1 .. num_classes - 1 reaches every other class and never the same one.
    shifts = random.randint(1, max(num_classes, 2), size=len(clean), dtype=np.int64)
    return NoisyLabels(np.where(chosen, (clean + shifts) % num_classes, clean), clean, num_classes)
