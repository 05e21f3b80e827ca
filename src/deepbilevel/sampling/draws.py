"""What a group holds: which labels are drawn, which images stand for them, and which part of it a sampler yields.

Labels are drawn in two ways, both like the data set's own frequencies. This module knows label frequencies and how
often a group can hold each class; what labels mean is not its business.
"""

from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from deepbilevel.sampling.pools import Indices

Draw = Literal["shuffled", "stratified"]


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


class ImageQueue:
    """Deals the images of one class, reshuffled whenever all have been dealt.

    So the visits of two images differ by at most one at any moment. A group that begins with the end of one
    shuffle and goes on with the next gets no image twice, as long as the class has enough of them.
    """

    def __init__(self, images: Indices, random: np.random.RandomState) -> None:
        self._images = images
        self._random = random
        self._rest = images[:0]

    def take(self, group_of: Indices) -> Indices:
        """Return one image per entry of ``group_of``, which names in ascending order the group it will join."""
        taken = np.empty(len(group_of), dtype=np.int64)
        done = 0
        while done < len(taken):
            if len(self._rest) == 0:
                start, stop = (int(np.searchsorted(group_of, group_of[done], side)) for side in ("left", "right"))
                self._rest = self._reshuffle(already_in_group=taken[start:done], places_left=stop - done)
            dealt, self._rest = np.split(self._rest, [len(taken) - done])
            taken[done : done + len(dealt)] = dealt
            done += len(dealt)
        return taken

    def _reshuffle(self, already_in_group: Indices, places_left: int) -> Indices:
        order = self._random.permutation(self._images)
        if len(already_in_group) == 0:
            return order
        first = order[~np.isin(order, already_in_group)][:places_left]
        # Shuffled again, or those that stepped back would come early in the rest.
        return np.concatenate([first, self._random.permutation(order[~np.isin(order, first)])])


@dataclass(frozen=True)
class Part:
    """A part of ``[groups, num_batches, batch_size]``; all of it where a process works alone.

    Attributes:
        rank: the own place among the processes.
        size: their number.
        spread: what is cut into parts.
        num_batches: k, the mini-batches of a group.
    """

    rank: int
    size: int
    spread: Literal["batches", "groups", "images"]
    num_batches: int

    @property
    def places(self) -> range:
        """Which mini-batches of a group are yielded."""
        return range(self.rank, self.num_batches, self.size) if self.spread == "batches" else range(self.num_batches)

    @property
    def at_once(self) -> int:
        """How many groups all processes together go through, while this one goes through one."""
        return self.size if self.spread == "groups" else 1

    @property
    def stride(self) -> int:
        """How many mini-batches all processes together go through meanwhile."""
        return self.at_once * self.num_batches

    def of_epoch(self, epoch: Indices) -> Indices:
        """Return the own groups, and the own images of each mini-batch; equally many in all processes."""
        if self.spread == "groups":
            whole = len(epoch) // self.size * self.size
            return epoch[self.rank : whole : self.size]
        return epoch[..., self.rank :: self.size] if self.spread == "images" else epoch
