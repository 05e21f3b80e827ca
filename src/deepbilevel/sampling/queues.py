"""Which image comes next: queues that visit every image of a class equally often.

This module knows that a group must not repeat an image; it does not know labels.
"""

import numpy as np

from deepbilevel.sampling.labels import Indices


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
