"""Which images get a new label: exactly the same share of every class.

This module knows who is chosen; it does not know what a chosen image's label becomes.
"""

import numpy as np

from deepbilevel_lab.noise.arguments import Labels, Mask, read_rate


def choose_share(clean_labels: Labels, rate: float, num_classes: int, random: np.random.RandomState) -> Mask:
    """Choose exactly ``int(rate * n_c)`` of the ``n_c`` images of every class c, each equally likely.

    With the same random numbers a higher rate chooses the same images and further ones.
    """
    rate = read_rate(rate)
    if num_classes < 2 and rate > 0:
        raise ValueError(f"num_classes must be at least 2 to flip labels, got {num_classes}; or pass rate=0")
    chosen = np.zeros(len(clean_labels), dtype=bool)
    for label in range(num_classes):
        members = np.flatnonzero(clean_labels == label)
        chosen[random.permutation(members)[: int(rate * len(members))]] = True
    return chosen
