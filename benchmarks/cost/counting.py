"""Counting what torch does, instead of timing it: operations, bytes that move, bytes that are allocated and held.

Counts do not depend on the machine or on what else runs there, so a test can pin them. Counted is what passes torch's
dispatcher: an operation on many tensors at once (foreach) is one. Views cost nothing.

Counted are any action, and of the contenders what their updates do beyond plain gradient accumulation, and the most
memory they need above the parameters. That tells apart what no clock can: two loops over the same passes differ by less
than a machine's moods where passes are long.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.cost.contenders import (
    ACCUMULATION,
    AT_ONCE,
    BILEVEL,
    CLAIMED,
    EVERYBODY,
    NEAREST,
    SGD,
    accumulation,
    ours,
    ours_at_once,
    sgd,
    sgd_on_one,
)
from benchmarks.cost.work import Setting, Work
from deepbilevel import Bilevel, CrossValidated, GroupStep
from deepbilevel.rules.exact import ExactBilevel

OPERATIONS, MOVED, ALLOCATED = "operations", "read and written", "allocated"
ONE_MINI_BATCH = "SGD, one mini-batch"
_MEASURED_MEMORY = {
    ONE_MINI_BATCH: sgd_on_one,
    SGD: sgd,
    ACCUMULATION: accumulation,
    BILEVEL: ours(Bilevel),
    AT_ONCE: ours_at_once(Bilevel),
    "cross-validated": ours(CrossValidated),
    "bilevel, exact": ours(GroupStep, rule=ExactBilevel()),
}


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


def count_updates(setting: Setting) -> dict[str, dict[str, float]]:
    """Return for those whom claims are about, and the nearest peers, what they do beyond accumulation.

    Bytes are told in multiples of the model's size. A peer that fails is left out: where time is measured its reason
    is told. So is plain SGD, which makes one pass instead of k.
    """
    work = Work.of(setting)
    size = work.model_bytes
    counted: dict[str, CountedWork] = {}
    for contender in EVERYBODY:
        if contender.name not in CLAIMED + NEAREST or contender.name == SGD:
            continue
        try:
            update = contender.prepare(work)
            update()  # the steady state begins with the second one
            counted[contender.name] = count_work(update)
        except Exception:
            if contender.kind != "peer":
                raise
    plain = counted.pop(ACCUMULATION)
    beyond = {name: each - plain for name, each in counted.items()}
    return {
        name: {
            OPERATIONS: each.operations,
            MOVED: round(each.bytes_moved / size, 1),
            ALLOCATED: round(each.bytes_allocated / size, 1),
        }
        for name, each in beyond.items()
    }


def peaks_in_models(setting: Setting) -> dict[str, float]:
    """Return the peak of two updates for every contender, in multiples of the model's size.

    The optimizer's momentum, gradients and activations are all in it. Only what operations allocate is counted, so the
    figures are the same on every machine.
    """
    work = Work.of(setting)
    size = work.model_bytes
    peaks: dict[str, float] = {}
    for name, prepare in _MEASURED_MEMORY.items():
        update = prepare(work)
        with LiveBytes() as memory:
            update()  # makes the optimizer's momentum
            update()
        peaks[name] = memory.peak / size
    return peaks
