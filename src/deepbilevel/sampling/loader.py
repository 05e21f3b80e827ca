"""A ``DataLoader`` over matched groups whose position can be saved, also while its workers fetch ahead."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch.utils.data import DataLoader, Dataset, Sampler

from deepbilevel.sampling.matched import MatchedGroups
from deepbilevel.sampling.pools import Labels


class MatchedLoader(DataLoader[Any]):
    """Loads the mini-batches of :class:`MatchedGroups`; :meth:`~deepbilevel.GroupStep.loader` makes one.

    It counts the mini-batches that were handed out, so that its state is right whatever workers have fetched ahead.
    Trainers that look for ``state_dict`` and ``load_state_dict``, such as Lightning's, then resume in mid-epoch.

    >>> from deepbilevel import MatchedGroups
    >>> loader = MatchedLoader(range(8), MatchedGroups([0, 1] * 4, num_batches=2, batch_size=2, seed=0))
    >>> [len(batch) for batch in loader]
    [2, 2, 2, 2]
    >>> loader.state_dict()["epoch"]
    1

    Args:
        dataset: anything with ``__getitem__``.
        groups: which of its items form a mini-batch: a ``MatchedGroups``, or a sampler that has one as ``groups``.
        options: of torch's ``DataLoader``.
    """

    def __init__(self, dataset: "Dataset[Any]", groups: Sampler[list[int]], **options: Any) -> None:
        super().__init__(dataset, batch_sampler=groups, **options)
        self._position: tuple[int, int] | None = None  # epoch and own mini-batches, while a pass is on its way

    @property
    def groups(self) -> MatchedGroups:
        """What is loaded."""
        sampler: Any = self.batch_sampler
        return getattr(sampler, "groups", sampler)

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        epoch, position = self.groups.next_position
        own = len(self.groups) // self.groups.num_groups
        self._position = epoch, position // self.groups.stride * own
        for batch in super().__iter__():
            self._position = epoch, self._position[1] + 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Let the next pass be this epoch, from its start; going on in order needs no call."""
        self.groups.set_epoch(epoch)
        self._position = None

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last whole group that was handed out."""
        state = self.groups.state_dict()
        epoch, position = self.groups.next_position
        if self._position is not None:
            epoch, batches = self._position
            own = len(self.groups) // self.groups.num_groups
            position = batches // own * self.groups.stride
            if batches == len(self.groups):
                epoch, position = epoch + 1, 0
        return {**state, "epoch": epoch, "position": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next pass go on where :meth:`state_dict` was called."""
        self.groups.load_state_dict(state)
        self._position = None


class _Dealing(Protocol):
    @property
    def num_batches(self) -> int: ...
    def deal(self, groups: MatchedGroups) -> Sampler[list[int]]: ...


def make_loader(
    step: _Dealing, dataset: Any, labels: Labels, *, batch_size: int, seed: int, **options: Any
) -> MatchedLoader:
    """Return the loader of a step's groups; see :meth:`deepbilevel.GroupStep.loader`."""
    if not isinstance(labels, int) and len(labels) != len(dataset):
        raise ValueError(
            f"labels has {len(labels)} entries, but dataset has {len(dataset)} items; pass one label per item, in the "
            "order of the data set"
        )
    for_groups = {name: options.pop(name) for name in ("matched", "holdout", "draw", "on_rare") if name in options}
    groups = MatchedGroups(labels, num_batches=step.num_batches, batch_size=batch_size, seed=seed, **for_groups)
    return MatchedLoader(dataset, step.deal(groups), **options)
