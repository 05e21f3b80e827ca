"""Counting what torch does, instead of timing it: operations, bytes that move, bytes that are allocated and held.

Counts do not depend on the machine or on what else runs there, so a test can pin them. Counted is what passes torch's
dispatcher: an operation on many tensors at once (foreach) is one. Views cost nothing. This module knows no rule.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class CountedWork:
    """What was counted.

    Attributes:
        operations: how many were dispatched, views aside.
        bytes_moved: read and written by all of them; a tensor that is changed in place is read and written, and one
            that is given to hold the result (``out=``) written only.
        bytes_allocated: of all storages that were made, however short they lived.
    """

    operations: int
    bytes_moved: int
    bytes_allocated: int

    def __sub__(self, other: "CountedWork") -> "CountedWork":
        return CountedWork(
            self.operations - other.operations,
            self.bytes_moved - other.bytes_moved,
            self.bytes_allocated - other.bytes_allocated,
        )


_UNTOUCHED = ("aten.empty", "aten.new_empty")  # allocate, and neither read nor write


class _Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.bytes_moved = 0
        self.bytes_allocated = 0

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        returns = [each.alias_info for each in func._schema.returns]
        if any(alias is not None and not alias.is_write for alias in returns):
            return result  # a view
        self.names[str(func)] += 1
        arguments = func._schema.arguments
        given = dict(zip((argument.name for argument in arguments), args, strict=False)) | dict(kwargs)
        read = _sizes(given.get(argument.name) for argument in arguments if not argument.is_out)
        written = _sizes(
            given.get(argument.name)
            for argument in arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        made = {place: size for place, size in _sizes([result]).items() if place not in read | written}
        self.bytes_allocated += sum(made.values())
        if not str(func).startswith(_UNTOUCHED):
            self.bytes_moved += sum(read.values()) + sum(written.values()) + sum(made.values())
        return result


def count_work(action: Callable[[], object]) -> CountedWork:
    """Count what an action does.

    >>> numbers = torch.zeros(1000)
    >>> count_work(lambda: numbers.add_(1))
    CountedWork(operations=1, bytes_moved=8000, bytes_allocated=0)
    >>> count_work(lambda: numbers.view(10, 100) + 1)
    CountedWork(operations=1, bytes_moved=8000, bytes_allocated=4000)
    >>> count_work(lambda: torch.empty_like(numbers))
    CountedWork(operations=1, bytes_moved=0, bytes_allocated=4000)
    """
    with _Dispatched() as counted:
        action()
    return CountedWork(sum(counted.names.values()), counted.bytes_moved, counted.bytes_allocated)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that operations have made and that are still alive, and their peak.

    Attributes:
        live: bytes that are alive now.
        peak: the most that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors([result]):
            self._watch(tensor.untyped_storage())
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._known or size == 0:
            return
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)  # pyright: ignore[reportUnknownArgumentType]


def _sizes(values: Iterable[Any]) -> dict[tuple[int, int], int]:
    """Return the bytes of all tensors by their place in memory: one that is given twice is read once."""
    return {
        (each.untyped_storage().data_ptr(), int(each.storage_offset())): each.numel() * each.element_size()
        for each in _tensors(values)
        if each.numel() > 0
    }
