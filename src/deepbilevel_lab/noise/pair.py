"""Label noise with one wrong class per class: what an annotator does who confuses neighbours."""

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.noise.arguments import random_numbers, read_labels, read_num_classes
from deepbilevel_lab.noise.noisy_labels import NoisyLabels
from deepbilevel_lab.noise.shares import choose_share


def flip_to_next(clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
    """Flip exactly ``int(rate * n_c)`` labels of every class c to the next class, ``(c + 1) % num_classes``.

    Above a rate of one half most labels of every class name its neighbour, and nothing in the data tells the two apart.

    >>> flip_to_next([0, 0, 1, 1, 2, 2], 0.5, num_classes=3, seed=0).labels.tolist()
    [0, 1, 2, 1, 0, 2]
    """
    num_classes, random = read_num_classes(num_classes), random_numbers(seed)
    clean = read_labels(clean_labels, num_classes)
    chosen = choose_share(clean, rate, num_classes, random)
    return NoisyLabels(np.where(chosen, (clean + 1) % num_classes, clean), clean, num_classes)
