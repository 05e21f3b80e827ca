"""What is spread over processes, and whether sampler and step mean the same. Knows no process but by its number.

batches   one group: each process runs some of its k mini-batches
groups    as many groups as processes: each runs one of its own, and the resulting gradients are averaged
images    one group, all k mini-batches: each process runs its share of the images of each
"""

import weakref
from typing import Literal

Spread = Literal["batches", "groups", "images"]
Members = tuple[int, ...]

# A sampler and a step never meet: one is asked by a loader, the other by the loop. Only both of them know.
_samplers: weakref.WeakKeyDictionary[object, tuple[Members, Spread]] = weakref.WeakKeyDictionary()


def note_sampler(sampler: object, members: Members, spread: Spread) -> None:
    """Remember, as long as the sampler lives, what it deals out to the processes ``members``."""
    _samplers[sampler] = members, spread


def check_samplers(members: Members, spread: Spread) -> None:
    """Refuse a step that shares with ``members`` in a way in which no living sampler deals out to them.

    Without a sampler of ours there is nothing to compare.
    """
    dealt = {theirs for others, theirs in _samplers.values() if others == members}
    if dealt and spread not in dealt:
        reason = ", because its parameters are sharded" if spread == "images" else ""
        raise ValueError(
            f"this step expects spread={spread!r}{reason}, but MatchedGroups was made with spread={min(dealt)!r}; "
            "make both with the same"
        )
