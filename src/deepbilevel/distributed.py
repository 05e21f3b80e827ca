"""The processes that share the mini-batches of a group. The only file that knows ranks and ``torch.distributed``.

It moves numbers and flat tensors and does not know what they mean: no rule, no gradient, no module but torch's own
wrapper, whose reduction would be a second one. Mini-batch i of a group belongs to rank ``i mod size``. Of parameters
that are cut into shards it knows which part is here.
"""

import os
import sys
import traceback
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from deepbilevel.processes import Answer, FailedElsewhereError, LostProcessError, OneProcess

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.distributed_c10d import Store

    ProcessGroupChoice: TypeAlias = ProcessGroup | Literal[False] | None
else:
    ProcessGroupChoice = Any  # a torch built without distribution has no such class


class Ranks:
    """What the processes of a group say to each other; each method is called by all of them, in the same order.

    Args:
        process_group: torch's own, or ``None`` for the default one.
    """

    def __init__(self, process_group: "ProcessGroup | None") -> None:
        self._group = process_group
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
                f"would have nothing to do; start at most {num_batches} processes, compare more mini-batches, pass "
                "spread='groups' to give every process a group of its own, or process_group=False to keep the group "
                "in one process"
            )

    def rows_of_all(self, rows: Tensor, num_batches: int) -> Tensor:
        """Return the rows of all mini-batches in the order of the group, shape ``[num_batches, columns]``."""
        # A sum with zeros leaves what is not finite in its own row, and needs no padding where shares differ.
        whole = rows.new_zeros(num_batches, rows.shape[1])
        whole[self.rank :: self.size] = rows
        dist.all_reduce(whole, group=self._group)
        return whole

    def add_up(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over all processes, in one reduction per dtype."""
        flats = _joined(vectors)
        pending = [dist.all_reduce(flat, group=self._group, async_op=True) for flat in flats.values()]
        for work in pending:
            _wait(work)
        return _parts(flats, vectors)

    def average(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return the means over all processes, in one reduction per dtype."""
        totals = self.add_up(vectors)
        for total in totals:
            total.div_(self.size)
        return totals

    def begin_broadcast(self, vectors: Sequence[Tensor]) -> "Broadcast":
        """Send the first process's vectors to all; to the others, theirs only say how long these are."""
        if self.rank == 0:
            flats = _joined(vectors)
        else:
            lengths = {each.dtype: 0 for each in vectors}
            for each in vectors:
                lengths[each.dtype] += each.numel()
            flats = {dtype: vectors[0].new_empty(length, dtype=dtype) for dtype, length in lengths.items()}
        pending = [dist.broadcast(flat, self._first, group=self._group, async_op=True) for flat in flats.values()]
        return Broadcast(_parts(flats, vectors), pending)

    def number_of_first(self, number: int, device: torch.device) -> int:
        """Return the first process's number."""
        sent = torch.tensor(number, device=device)
        dist.broadcast(sent, self._first, group=self._group)
        return int(sent)

    def numbers_of_all(self, numbers: Sequence[int], device: torch.device) -> list[list[int]]:
        """Return everybody's numbers, by rank."""
        own = torch.tensor(numbers, device=device)
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(gathered, own, group=self._group)
        return [each.tolist() for each in gathered]


class Broadcast:
    """Vectors on their way from the first process; it may read its own before they have arrived elsewhere."""

    def __init__(self, vectors: list[Tensor], pending: list[Any]) -> None:
        self.vectors = vectors
        self._pending = pending

    def wait(self) -> list[Tensor]:
        """Return the vectors when they are there."""
        for work in self._pending:
            _wait(work)
        self._pending = []
        return self.vectors


class Shards:
    """Parameters that are cut into parts, one per process, as FSDP2 (``fully_shard``) does.

    Args:
        parameters: all of them cut by the same processes.
    """

    def __init__(self, parameters: Sequence[Any]) -> None:
        sharded = _sharded_type()
        meshes: set[Any] = {each.device_mesh if isinstance(each, sharded) else None for each in parameters}
        if len(meshes) > 1:
            raise ValueError(
                "some parameters are sharded and others are not, or not by the same processes; call fully_shard on "
                "the whole model with one mesh"
            )
        (mesh,) = meshes
        if mesh.ndim != 1 or not all(parameter.placements[0].is_shard() for parameter in parameters):
            raise ValueError(
                f"parameters are laid out as {parameters[0].placements} over a mesh of {mesh.ndim} dimensions; call "
                "fully_shard with a mesh of one dimension and nothing else that distributes parameters"
            )
        self._parameters = parameters
        self.ranks = Ranks(mesh.get_group())
        self.keep_rows: bool = all(parameter.placements[0].is_shard(0) for parameter in parameters)

    def own_part(self, tensor: Any) -> Tensor:
        """Return the part of a parameter or gradient that is here."""
        return tensor.to_local()

    def joined(self, position: int, part: Tensor) -> Tensor:
        """Return a tensor cut like the parameter at ``position``, of which ``part`` is here."""
        like = self._parameters[position]
        return _sharded_type().from_local(
            part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


def find_shards(parameters: Sequence[Tensor]) -> Shards | None:
    """Return how parameters are cut, or nothing where they are whole."""
    sharded = _sharded_type()
    return Shards(parameters) if sharded and any(isinstance(each, sharded) for each in parameters) else None


def _sharded_type() -> Any:
    # Who has no such tensor need not load the module, which takes a while.
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)


def find_ranks(process_group: ProcessGroupChoice) -> Ranks | None:
    """Return the processes that share a group, or nothing where this process works alone.

    Args:
        process_group: ``None`` takes all processes if ``torch.distributed`` is initialised, ``False`` never shares,
            and a group of torch's shares with its members.
    """
    if process_group is False:
        return None
    if not dist.is_available() or not dist.is_initialized():
        if process_group is not None:
            raise ValueError("process_group is given, but torch.distributed is not initialised; initialise it first")
        return None
    if dist.get_rank(process_group) < 0:
        raise ValueError(
            "this process is not in process_group; pass the group it is in, or process_group=False to work alone"
        )
    return None if dist.get_world_size(process_group) == 1 else Ranks(process_group)


class ManyProcesses(OneProcess):
    """All processes of ``torch.distributed``; each method is called by all of them, in the same order."""

    def __init__(self) -> None:
        self._ranks = Ranks(None)
        self.size = self._ranks.size
        self.is_first = self._ranks.rank == 0
        talks_on_cpu = "cpu" in dist.get_backend_config()
        self._device = torch.device("cpu") if talks_on_cpu else torch.device("cuda", torch.cuda.current_device())

    def own(self, count: int) -> range:
        """Return every ``size``-th piece."""
        return range(self._ranks.rank, count, self.size)

    def threads(self, wanted: int) -> int:
        """Divide the threads among the processes of this machine."""
        return max(1, wanted // Launch.find().local_size)

    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        """Send the wishes around."""
        said = torch.tensor(wishes, dtype=torch.int32, device=self._device)
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        return tuple(bool(wish) for wish in said.tolist())

    def ask_first(self, work: Callable[[], Answer]) -> Answer:
        """Send what came of it to all, or that it failed."""
        answer: list[Any] = ["failed", None]
        error: BaseException | None = None
        if self.is_first:
            try:
                answer = ["done", work()]
            except BaseException as raised:
                error = raised
        dist.broadcast_object_list(answer, 0)
        if error is not None:
            raise error
        if answer[0] == "failed":
            raise FailedElsewhereError("the first process has failed, and says why")
        return answer[1]

    def put_together(self, rows: Tensor | None, lengths: Sequence[int], width: int) -> Tensor:
        """Add up rows that are zero where another process has them, which changes no number."""
        whole = torch.zeros(sum(lengths), width, device=self._device)
        if rows is not None:
            start = sum(lengths[: self._ranks.rank])
            whole[start : start + len(rows)] = rows.to(self._device)
        dist.all_reduce(whole)
        return whole.cpu()

    def told_by_first(self, error: Exception) -> Exception:
        """Return the error itself in the first."""
        return error if self.is_first else FailedElsewhereError("the first process says what went wrong")

    @contextmanager
    def succeeding(self) -> Generator[None]:
        """Tell each other how it went."""
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            error = raised
        answers = self._ranks.numbers_of_all([int(error is not None)], self._device)
        failed = [rank for rank, (answer,) in enumerate(answers) if answer]
        if error is not None and failed[0] == self._ranks.rank:
            raise error
        if failed:
            raise FailedElsewhereError(f"process {failed[0]} has failed, and says why") from error

    @contextmanager
    def explaining(self) -> Generator[None]:
        """Tell errors of exchange from all others by where torch was called: all exchange is called from this file."""
        try:
            yield
        except RuntimeError as error:
            if not _is_of_exchange(error):
                raise
            raise LostProcessError(_explanation(error)) from error


@dataclass(frozen=True)
class Launch:
    """What torchrun says about this process: its place among all, and among those of this machine.

    Attributes:
        restarts: how often torchrun has started all of them again, because one had failed.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    restarts: int = 0

    @classmethod
    def find(cls) -> "Launch":
        """Read the environment; a process that nobody launched is the only one."""
        if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
            return cls()
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")
        return cls(*(int(os.environ.get(name, default)) for name, default in zip(names, (0, 1, 0, 1, 0), strict=True)))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and prints."""
        return self.rank == 0

    @contextmanager
    def joined(self, device: str, timeout: float) -> Generator[None]:
        """Let the processes know each other while this is entered.

        Args:
            device: where they train, ``cpu`` or ``cuda``.
            timeout: seconds that one may wait for another.
        """
        if self.size == 1:
            yield
            return
        from torch.distributed.rendezvous import rendezvous  # a torch built without distribution has none

        if device == "cuda":
            if self.local_rank >= torch.cuda.device_count():
                raise ValueError(
                    f"device 'cuda' needs a GPU for each process, but this machine has {torch.cuda.device_count()} "
                    f"and torchrun started {self.local_size} processes; take --nproc-per-node gpu"
                )
            torch.cuda.set_device(self.local_rank)
        backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
        try:
            store, _, _ = next(rendezvous("env://", timeout=timedelta(seconds=timeout)))
            store = _without_leftovers(store, self.rank, self.size, timeout)
            dist.init_process_group(
                backend, store=store, rank=self.rank, world_size=self.size, timeout=timedelta(seconds=timeout)
            )
        except RuntimeError as error:
            raise LostProcessError(_explanation(error)) from error
        yield
        # Only after a good end: beside processes that are lost it might wait for them, and the process ends anyway.
        dist.destroy_process_group()


def _without_leftovers(store: "Store", rank: int, size: int, timeout: float) -> "Store":
    """Return a part of the store that holds nothing of processes that ran before.

    torchrun keeps its store when it starts processes again, and in it the addresses of those that are dead. So the
    first process opens a new part, and the others come in; who knocks at a dead one's gets no answer, and looks again.
    """
    from torch.distributed.distributed_c10d import PrefixStore

    own = uuid.uuid4().hex
    if rank == 0:
        store.set("first", own)
        for other in range(1, size):
            store.set(f"{own}/{store.get(f'{own}/{other}').decode()}", "welcome")
        return PrefixStore(own, store)
    for is_last in (*[False] * int(timeout), True):
        first = store.get("first").decode()
        store.set(f"{first}/{rank}", own)
        try:
            store.wait([f"{first}/{own}"], timedelta(seconds=1))
            return PrefixStore(first, store)
        except dist.DistStoreError:
            if is_last:
                raise
    raise AssertionError("the last attempt returns or raises")


def find_processes() -> OneProcess:
    """Return the processes that share a run: all of ``torch.distributed`` if it is initialised, else this one."""
    return OneProcess() if find_ranks(None) is None else ManyProcesses()


def _is_of_exchange(error: RuntimeError) -> bool:
    if isinstance(error, torch.OutOfMemoryError | LostProcessError | FailedElsewhereError):
        return False
    library = str(Path(torch.__file__).parent)
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return [file for file in files if not file.startswith(library)][-1:] == [__file__]


def _explanation(error: RuntimeError) -> str:
    after = "The same command goes on from the last checkpoint"
    if "timed out" in str(error).lower() or "timeout" in str(error).lower():
        return (
            "another process of this run has not answered within the time-out: it hangs, or is slower than --timeout "
            f"allows. See what it does, end what is left of it, and take a larger --timeout if it is only slow. {after}"
        )
    return f"another process of this run is gone; look for its own message, or for who killed it. {after}"


def switch_off_wrappers(model: nn.Module) -> None:
    """Keep ``DistributedDataParallel`` from averaging gradients and sending buffers: the group does both itself."""
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            module.require_backward_grad_sync = False
            module.require_forward_param_sync = False  # else the first forward pass would still send the buffers


def _joined(vectors: Sequence[Tensor]) -> dict[torch.dtype, Tensor]:
    dtypes = dict.fromkeys(each.dtype for each in vectors)
    return {dtype: torch.cat([each for each in vectors if each.dtype == dtype]) for dtype in dtypes}


def _parts(flats: dict[torch.dtype, Tensor], vectors: Sequence[Tensor]) -> list[Tensor]:
    """Return views of the joined vectors, one for each of ``vectors``."""
    offsets = dict.fromkeys(flats, 0)
    parts: list[Tensor] = []
    for each in vectors:
        start = offsets[each.dtype]
        offsets[each.dtype] = start + each.numel()
        parts.append(flats[each.dtype][start : start + each.numel()])
    return parts


def _wait(work: Any) -> None:
    if work is not None:
        work.wait()
