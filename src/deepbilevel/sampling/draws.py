"""Which labels a group carries: two ways to draw them like the data set's own frequencies.

This module knows label frequencies and how often a group can hold each class; it does not know images.
"""

from collections import deque
from typing import Literal, Protocol

import numpy as np

from deepbilevel.sampling.labels import Indices

Draw = Literal["shuffled", "stratified"]


class LabelDraw(Protocol):
    """Yields the label vectors of the coming groups."""

    def draw(self, num_groups: int) -> Indices:
        """Return the labels of the next groups, shape ``[num_groups, batch_size]``."""
        ...


class ShuffledDeck:
    """The next labels of a shuffled deck that holds every image's label, as the paper's authors drew them.

    Args:
        sizes: how many images each class has.
        batch_size: how many labels a group carries.
        caps: how often a class fits into one group without repeating an image.
        random: shuffles.
    """

    def __init__(self, sizes: Indices, batch_size: int, caps: Indices, random: np.random.RandomState) -> None:
        # A class that cannot come as often as its share has fewer cards: enough for it to come as often as it can, and
        # not so many that dealing would have to look through them for the others.
        shares = capped_shares(sizes, batch_size, caps)
        enough = 4 * np.ceil(shares * (sizes / shares).min()).astype(np.int64)
        self._deck = np.repeat(np.arange(len(sizes)), np.minimum(sizes, enough))
        self._batch_size = batch_size
        self._caps = caps
        self._random = random
        self._rest = self._deck[:0]
        self._deferred: list[int] = []

    def draw(self, num_groups: int) -> Indices:
        """Return the labels of the next groups, shape ``[num_groups, batch_size]``."""
        if self._caps.min() >= self._batch_size:
            return self._deal(num_groups * self._batch_size).reshape(num_groups, self._batch_size)
        return np.array([self._draw_capped() for _ in range(num_groups)], dtype=np.int64)

    def _deal(self, count: int) -> Indices:
        while len(self._rest) < count:
            self._rest = np.concatenate([self._rest, self._random.permutation(self._deck)])
        dealt, self._rest = self._rest[:count], self._rest[count:]
        return dealt

    def _draw_capped(self) -> list[int]:
        room = self._caps.copy()
        group: list[int] = []
        waiting: list[int] = []
        pending = deque(self._deferred)
        while len(group) < self._batch_size:
            label = pending.popleft() if pending else int(self._deal(1)[0])
            if room[label] > 0:
                room[label] -= 1
                group.append(label)
            else:
                waiting.append(label)
        # A label that found no room goes to the next group. The queue is cut, lest it grow where a class has no room to
        # spare: that class is then drawn as often as it can be.
        self._deferred = [*waiting, *pending][: self._batch_size]
        return group


class StratifiedDraw:
    """Every group's count of each class is the class's expected share, rounded up or down.

    The rounding is systematic sampling: one random offset per group picks which classes are rounded up, each with
    exactly the probability of its fraction. Arguments as for :class:`ShuffledDeck`.
    """

    def __init__(self, sizes: Indices, batch_size: int, caps: Indices, random: np.random.RandomState) -> None:
        shares = capped_shares(sizes, batch_size, caps)
        whole = np.floor(shares).astype(np.int64)
        self._always = np.repeat(np.arange(len(sizes)), whole)
        self._fractions = shares - whole
        self._num_rounded_up = batch_size - len(self._always)
        self._random = random

    def draw(self, num_groups: int) -> Indices:
        """Return the labels of the next groups, shape ``[num_groups, batch_size]``."""
        classes = self._random.permutation(len(self._fractions))
        edges = np.cumsum(self._fractions[classes])
        points = self._random.random_sample((num_groups, 1)) + np.arange(self._num_rounded_up)
        # Rounding errors could push the last point past the last edge.
        picked = np.searchsorted(edges, np.minimum(points, np.nextafter(edges[-1], 0)), side="right")
        always = np.broadcast_to(self._always, (num_groups, len(self._always)))
        return np.concatenate([always, classes[picked]], axis=1).astype(np.int64)


def capped_shares(sizes: Indices, batch_size: int, caps: Indices) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Share ``batch_size`` out in proportion to ``sizes``; what a class cannot take goes to the others."""
    shares = batch_size * sizes / sizes.sum()
    while (shares > caps).any():
        capped = shares >= caps
        open_sizes = np.where(capped, 0, sizes)
        left = batch_size - caps[capped].sum()
        shares = np.where(capped, caps, left * open_sizes / max(open_sizes.sum(), 1))
    return shares
