"""What a sampler of groups promises, as assertions, and random samplers to hold it to them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from deepbilevel import MatchedGroups

DRAWS = ("shuffled", "stratified")


@dataclass(frozen=True)
class Case:
    """Labels and the settings of a sampler that can be built from them."""

    labels: np.ndarray
    settings: dict[str, Any]

    def build(self, **changes: Any) -> MatchedGroups:
        """Return a fresh sampler, at its first epoch."""
        return MatchedGroups(self.labels, **{**self.settings, **changes})


def shuffled_labels(sizes: list[int], seed: int = 0) -> np.ndarray:
    """Return ``sizes[c]`` labels of each class c, in an order that has nothing to do with the class."""
    return np.random.RandomState(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


@st.composite
def cases(draw, *, holdouts=(None, 0.1, 0.34, 0.5), capped=False):
    """Draw samplers whose groups can be filled; with ``capped``, to the last image of every class."""
    k = draw(st.integers(2, 5))
    sizes = draw(st.lists(st.integers(2 * k, 30), min_size=1, max_size=5))
    holdout = draw(st.sampled_from(holdouts))
    caps = [size // k for size in sizes]
    if holdout:
        reserved = [max(1, round(holdout * size)) for size in sizes]
        caps = [min(val, (size - val) // (k - 1)) for size, val in zip(sizes, reserved, strict=True)]
    most = sum(caps) if capped else min(8, sum(caps))
    return Case(
        shuffled_labels(sizes, draw(st.integers(0, 99))),
        {
            "num_batches": k,
            "batch_size": most if capped else draw(st.integers(1, most)),
            "seed": draw(st.integers(0, 99)),
            "draw": draw(st.sampled_from(DRAWS)),
            "holdout": holdout,
        },
    )


def take_epochs(groups: MatchedGroups, num_epochs: int) -> np.ndarray:
    """Return the images of the next epochs, shape ``[num_epochs, num_groups, num_batches, batch_size]``."""
    shape = (num_epochs, groups.num_groups, groups.num_batches, groups.batch_size)
    return np.array([list(groups) for _ in range(num_epochs)]).reshape(shape)


def assert_matched(epochs: np.ndarray, labels: np.ndarray) -> None:
    """The k mini-batches of a group carry the same label at the same place."""
    carried = np.asarray(labels)[epochs]
    np.testing.assert_array_equal(carried, np.broadcast_to(carried[:, :, :1], carried.shape))


def assert_disjoint(epochs: np.ndarray) -> None:
    """No group holds an image twice."""
    for group in epochs.reshape(-1, epochs.shape[2] * epochs.shape[3]):
        assert len(set(group.tolist())) == group.size, f"an image came twice in {group}"


def assert_visited_evenly(epochs: np.ndarray, pools: list[np.ndarray]) -> None:
    """After every single mini-batch, the visits of two images of a pool differ by at most one."""
    visits = np.zeros(max(pool.max() for pool in pools) + 1, dtype=int)
    for number, batch in enumerate(epochs.reshape(-1, epochs.shape[-1])):
        np.add.at(visits, batch, 1)
        for pool in pools:
            assert np.ptp(visits[pool]) <= 1, f"after mini-batch {number} images {pool} had {visits[pool]} visits"


def pools_of(groups: MatchedGroups, labels: np.ndarray) -> list[np.ndarray]:
    """Return the images that take turns with each other: per class, those that train and those held out."""
    validates = np.isin(np.arange(len(labels)), [] if groups.holdout is None else groups.holdout)
    pools = [np.flatnonzero((labels == c) & (validates == v)) for c in np.unique(labels) for v in (False, True)]
    return [pool for pool in pools if len(pool)]
