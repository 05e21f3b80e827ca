"""What processes can share, and whether sampler and step mean the same.

batches   one group: each process runs some of its k mini-batches
groups    as many groups as processes: each runs one of its own, and the resulting gradients are averaged
images    one group, all k mini-batches: each process runs its share of the images of each
nothing   every process trains a model of its own
"""

import weakref
from typing import Literal

from deepbilevel.guards import check_not_dealt_again

Spread = Literal["batches", "groups", "images"]
Members = tuple[int, ...]

# A sampler and a step never meet: one is asked by a loader, the other by the loop. Only this table knows both.
_samplers: weakref.WeakKeyDictionary[object, tuple[Members, Spread]] = weakref.WeakKeyDictionary()


def note_sampler(sampler: object, members: Members, spread: Spread) -> None:
    """Remember, as long as the sampler lives, what it deals out to the processes ``members``."""
    _samplers[sampler] = members, spread


def check_samplers(members: Members, spread: Spread) -> None:
    """Refuse a step that shares with ``members`` in a way in which no living sampler deals out to them.

    Also refuse samplers whose part somebody has dealt out once more. Without a shared sampler of ours there is nothing
    to compare.
    """
    check_not_dealt_again(list(_samplers))
    dealt = {theirs for others, theirs in _samplers.values() if others == members}
    if dealt and spread not in dealt:
        raise ValueError(
            f"this step shares {spread!r}, but MatchedGroups is shared with {min(dealt)!r}; pass the same to both "
            "calls of share()"
        )
