"""Label noise as most other papers mean it: a share of the labels is drawn anew, over all classes."""

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.noise.arguments import random_numbers, read_labels, read_num_classes
from deepbilevel_lab.noise.noisy_labels import NoisyLabels
from deepbilevel_lab.noise.shares import choose_share


def flip_symmetrically(clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Draw exactly ``int(rate * n_c)`` labels of every class anew, all classes equally likely, the old one included.

    About ``rate / num_classes`` of the labels are drawn anew and stay right: with ten classes, the "40 %" of a paper
    that makes its noise in this way is 36 % wrong. ``NoisyLabels.rate`` says what it came to.

    >>> noisy = flip_symmetrically([0, 1] * 500, 0.4, num_classes=2, seed=0)
    >>> noisy.rate
    0.193
    """
    num_classes, random = read_num_classes(num_classes), random_numbers(seed)
    clean = read_labels(clean_labels, num_classes)
    chosen = choose_share(clean, rate, num_classes, random)
    drawn = random.randint(0, num_classes, size=len(clean), dtype=np.int64)
    return NoisyLabels(np.where(chosen, drawn, clean), clean, num_classes)
