"""What processes say to each other: numbers and flat tensors, whatever they mean. Only this room knows ranks."""

import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:  # a torch built without distribution has no such class
    from torch.distributed import ProcessGroup

_BUCKET_BYTES = 25 * 2**20  # what torch's own wrapper takes


class ExchangeError(RuntimeError):
    """An exchange between processes failed: one of them is gone or does not answer. Its cause is torch's error."""


@contextmanager
def exchanging() -> Generator[None]:
    """Turn torch's errors into :class:`ExchangeError`; for code that does nothing but exchange."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ExchangeError(str(error)) from error


class Ranks:
    """What the processes of a group say to each other; each method is called by all of them, in the same order.

    Args:
        process_group: torch's own, or ``None`` for the default one.
    """

    def __init__(self, process_group: "ProcessGroup | None") -> None:
        self.process_group = process_group
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        self.members: tuple[int, ...] = tuple(dist.get_process_group_ranks(process_group or dist.group.WORLD))
        self._first: int = self.members[0]

    def num_own(self, num_batches: int) -> int:
        """Return how many of a group's mini-batches are this process's."""
        return len(range(self.rank, num_batches, self.size))

    def place(self, num_collected: int) -> int:
        """Return the place in the group of this process's mini-batch that comes after ``num_collected`` others."""
        return self.rank + num_collected * self.size

    def check_share(self, num_batches: int) -> None:
        """Refuse a group that has no mini-batch for some process."""
        if num_batches < self.size:
            raise ValueError(
                f"num_batches={num_batches} mini-batches cannot be spread over {self.size} processes, one of them "
                f"would have nothing to do; start at most {num_batches} processes, compare more mini-batches, or "
                "share(..., 'groups') to give every process a group of its own, or share(..., 'nothing')"
            )

    @exchanging()
    def rows_of_all(self, rows: Tensor, num_batches: int) -> Tensor:
        """Return the rows of all mini-batches in the order of the group, shape ``[num_batches, columns]``."""
        # A sum with zeros leaves what is not finite in its own row, and needs no padding where shares differ.
        whole = rows.new_zeros(num_batches, rows.shape[1])
        whole[self.rank :: self.size] = rows
        dist.all_reduce(whole, group=self.process_group)
        return whole

    @exchanging()
    def add_up(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over all processes; each number is sent once."""
        sums: dict[int, Tensor] = {}
        pending: list[Any] = []
        for bucket in _buckets(vectors):
            flat = torch.cat([vectors[position] for position in bucket])
            pending.append(dist.all_reduce(flat, group=self.process_group, async_op=True))
            sums |= _parts(flat, bucket, vectors)
        for work in pending:
            _wait(work)
        return [sums[position] for position in range(len(vectors))]

    def average(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means over all processes; each number is sent once."""
        totals = self.add_up(vectors)
        for total in totals:
            total.div_(self.size)
        return totals

    @exchanging()
    def begin_broadcast(self, vectors: Sequence[Tensor]) -> "Broadcast":
        """Send the first process's vectors to all; to the others, theirs only say how long these are."""
        sent: dict[int, Tensor] = {}
        pending: list[Any] = []
        for bucket in _buckets(vectors):
            own = [vectors[position] for position in bucket]
            flat = torch.cat(own) if self.rank == 0 else own[0].new_empty(sum(each.numel() for each in own))
            pending.append(dist.broadcast(flat, self._first, group=self.process_group, async_op=True))
            sent |= _parts(flat, bucket, vectors)
        return Broadcast([sent[position] for position in range(len(vectors))], pending)

    @exchanging()
    def number_of_first(self, number: int, device: torch.device) -> int:
        """Return the first process's number."""
        sent = torch.tensor(number, device=device)
        dist.broadcast(sent, self._first, group=self.process_group)
        return int(sent)

    @exchanging()
    def numbers_of_all(self, numbers: Sequence[int], device: torch.device) -> list[list[int]]:
        """Return everybody's numbers, by rank."""
        own = torch.tensor(numbers, device=device)
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(gathered, own, group=self.process_group)
        return [each.tolist() for each in gathered]


class Broadcast:
    """Vectors on their way from the first process; it may read its own before they have arrived elsewhere."""

    def __init__(self, vectors: list[Tensor], pending: list[Any]) -> None:
        self.vectors = vectors
        self._pending = pending

    @exchanging()
    def wait(self) -> list[Tensor]:
        """Return the vectors when they are there."""
        for work in self._pending:
            _wait(work)
        self._pending = []
        return self.vectors


def find_ranks(process_group: "ProcessGroup | None" = None) -> Ranks | None:
    """Return the processes of a group of torch's, all of them unless given; nothing where there is only one.

    Args:
        process_group: ``None`` takes all processes, if ``torch.distributed`` is initialised.
    """
    if not dist.is_available() or not dist.is_initialized():
        if process_group is not None:
            raise ValueError("process_group is given, but torch.distributed is not initialised; initialise it first")
        return None
    if dist.get_rank(process_group) < 0:
        raise ValueError("this process is not in process_group; pass the group it is in, or share(..., 'nothing')")
    return None if dist.get_world_size(process_group) == 1 else Ranks(process_group)


def quiet_wrappers(owner: object, model: nn.Module) -> None:
    """Keep ``DistributedDataParallel`` from averaging gradients and sending buffers, as long as ``owner`` lives.

    The owner does both itself. Afterwards the wrapper is as it was.
    """
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            before = module.require_backward_grad_sync, module.require_forward_param_sync
            num_owners, before = _quiet.get(module, (0, before))
            _quiet[module] = num_owners + 1, before
            module.require_backward_grad_sync = False
            module.require_forward_param_sync = False  # else the first forward pass would still send the buffers
            weakref.finalize(owner, _release_wrapper, weakref.ref(module))


# How many owners a wrapper has, and how it was before the first: a new one may come before the last one goes.
_quiet: weakref.WeakKeyDictionary[DistributedDataParallel, tuple[int, tuple[bool, bool]]] = weakref.WeakKeyDictionary()


def _release_wrapper(wrapper: "weakref.ref[DistributedDataParallel]") -> None:
    if (module := wrapper()) is None:
        return
    num_owners, before = _quiet.pop(module)
    if num_owners > 1:
        _quiet[module] = num_owners - 1, before
    else:
        module.require_backward_grad_sync, module.require_forward_param_sync = before


def _buckets(vectors: Sequence[Tensor]) -> list[list[int]]:
    """Return which vectors travel together: as many of one dtype as fit. Small models are one bucket.

    While a bucket is on its way the next one is filled.
    """
    buckets: list[list[int]] = []
    open_buckets: dict[torch.dtype, tuple[list[int], int]] = {}
    for position, each in enumerate(vectors):
        bucket, size = open_buckets.get(each.dtype, ([], _BUCKET_BYTES))
        if size + each.nbytes > _BUCKET_BYTES:
            bucket, size = [], 0
            buckets.append(bucket)
        bucket.append(position)
        open_buckets[each.dtype] = bucket, size + each.nbytes
    return buckets


def _parts(flat: Tensor, bucket: Sequence[int], vectors: Sequence[Tensor]) -> dict[int, Tensor]:
    """Return views of a bucket, one for each of the vectors in it."""
    return dict(zip(bucket, flat.split([vectors[position].numel() for position in bucket]), strict=True))


def _wait(work: Any) -> None:
    if work is not None:
        work.wait()
