"""What torchrun says about this process, and how the processes it starts find each other."""

import os
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import distributed as dist

from deepbilevel_lab.processes.one_process import LostProcessError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store


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
    def joined(self, device: str, timeout: float, together: tuple[type[BaseException], ...] = ()) -> Generator[None]:
        """Let the processes know each other while this is entered.

        Args:
            device: where they train, ``cpu`` or ``cuda``.
            timeout: seconds that one may wait for another.
            together: exceptions with which all processes leave, as they do at a good end.
        """
        if self.size == 1:
            yield
            return
        # A torch built without distribution has none of these. The first one's functions have the process group there
        # is when it is loaded as a default: loaded later, by torch itself, it would keep the group's threads alive
        # after destroy_process_group, and a process that ends beside them may abort.
        import_module("torch.distributed.nn")
        from torch.distributed.rendezvous import rendezvous

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
            raise LostProcessError.explaining(error) from error
        try:
            yield
        except together:
            dist.destroy_process_group()
            raise
        # Not after other exceptions: beside processes that are lost it might wait for them, and this one ends anyway.
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
