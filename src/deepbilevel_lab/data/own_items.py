"""A data set that somebody has in Python: anything with a length and items by number.

Items are asked for when they are needed; only labels are taken beforehand, once, because groups are drawn by them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from deepbilevel_lab.data.labelled_set import LabelledSet

_LABEL_KEYS = ("label", "labels")
_SAMPLED = 64  # items that a fingerprint looks at


class Items(Protocol):
    """What ``torch.utils.data.Dataset`` promises, and most others keep."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True, eq=False)
class OwnData:
    """A data set from Python, and what cannot be seen from its items.

    Attributes:
        items: item ``i`` is ``(x, label)``, or a mapping with the key ``label`` or ``labels`` and one other. ``x`` is a
            tensor, an array or numbers, always of one shape; ``label`` is a class, counted from 0.
        labels: of all items, where asking each item for its label would take long.
        test: items to test on; without them a share of ``items`` is set aside.
        class_names: the name of each class; their numbers by default.
    """

    items: Items
    labels: Sequence[int] | Tensor | None = None
    test: Items | None = None
    class_names: Sequence[str] | None = None

    def load(self) -> "OwnSets":
        """Return what to train on, and what to test on if it is given."""
        labels = _checked_labels(self.items, self.labels, "data")
        tested = None if self.test is None else _checked_labels(self.test, None, "test")
        most = max(int(each.max()) for each in (labels, tested) if each is not None)
        names = tuple(map(str, range(most + 1) if self.class_names is None else self.class_names))
        if most >= len(names):
            raise ValueError(f"class_names names {len(names)} classes, but there is a label {most}; name every class")
        sets = [
            None
            if items is None or each is None
            else OwnItems(items=items, places=torch.arange(len(each)), labels=each, class_names=names)
            for items, each in ((self.items, labels), (self.test, tested))
        ]
        train, test = sets
        assert train is not None
        train.check_labels()
        return train, test

    def fingerprint(self, sets: "OwnSets") -> str:
        """Return a text that is another one for other data: a hash of all labels and of some items."""
        content = hashlib.sha256()
        for each in sets:
            if each is not None:
                content.update(each.labels.numpy().tobytes())
                for place in np.unique(np.linspace(0, len(each) - 1, _SAMPLED).astype(int)).tolist():
                    content.update(each.read(place, seed=0).contiguous().numpy().tobytes())
        return content.hexdigest()[:16]


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnItems(LabelledSet):
    """Items of somebody's data set.

    Attributes:
        items: the data set.
        places: which of its items these are.
    """

    noun: ClassVar[str] = "item"

    items: Items
    places: Tensor

    def read(self, index: int, seed: int) -> Tensor:
        """Return what the network shall see; what the data set draws at random from torch follows from the seed."""
        place = int(self.places[index])
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            x, _ = _split(self.items[place], place)
        try:
            return torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"item {place} is a {type(x).__name__}, which is no tensor ({error}); turn it into one in the data "
                "set's __getitem__, or by its transform"
            ) from error


OwnSets = tuple[OwnItems, OwnItems | None]
"""What to train on, and what to test on if that was given too."""


def _split(item: Any, place: int) -> tuple[Any, Any]:
    """Return what is seen and the label."""
    if isinstance(item, Mapping):
        cells = dict(cast(Mapping[str, Any], item))
        keys = [key for key in _LABEL_KEYS if key in cells]
        if len(keys) == 1 and len(cells) == 2:
            label = cells.pop(keys[0])
            return next(iter(cells.values())), label
    elif isinstance(item, (tuple, list)) and len(cast(list[Any], item)) == 2:
        return item[0], item[1]
    shown = ", ".join(map(str, cast(Mapping[str, Any], item))) if isinstance(item, Mapping) else type(item).__name__
    raise TypeError(
        f"item {place} must be (x, label), or a mapping with {' or '.join(_LABEL_KEYS)} and one other key, got "
        f"{shown}; wrap the data set, or select its columns"
    )


def _checked_labels(items: Items, given: Sequence[int] | Tensor | None, name: str) -> Tensor:
    if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
        raise TypeError(
            f"{name} must have a length and items by number, got {type(items).__name__}; a stream has neither: groups "
            "pick samples by their labels. What goes with streams: docs/own-data.md"
        )
    if len(items) == 0:
        raise ValueError(f"{name} has no items")
    if given is None and isinstance(items, TensorDataset) and len(items.tensors) == 2:
        given = items.tensors[1]
    if given is None:
        given = [_split(items[place], place)[1] for place in range(len(items))]
    labels = torch.as_tensor(given)
    if labels.shape != (len(items),) or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels of {name} must be one class per item, whole numbers from 0 on, for {len(items)} items, got "
            f"{labels.dtype} of shape {list(labels.shape)}; quantities and several labels per item are for your own "
            "loop, see docs/loop.md"
        )
    if int(labels.min()) < 0:
        raise ValueError(f"labels of {name} are counted from 0, got {int(labels.min())}; leave out what has no label")
    return labels.to(torch.int64, copy=True)
