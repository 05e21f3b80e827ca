"""Several processes that share a run, over ``torch.distributed``."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from deepbilevel.distributed.ranks import ExchangeError, Ranks, exchanging, find_ranks
from deepbilevel_lab.processes.launching import Launch
from deepbilevel_lab.processes.one_process import Answer, FailedElsewhereError, LostProcessError, OneProcess


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

    @exchanging()
    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        """Send the wishes around."""
        said = torch.tensor(wishes, dtype=torch.int32, device=self._device)
        dist.all_reduce(said, op=dist.ReduceOp.MAX)
        return tuple(bool(wish) for wish in said.tolist())

    def ask_first(self, work: Callable[[], Answer]) -> Answer:
        """Send the result to all, or that it failed."""
        answer: list[Any] = ["failed", None]
        error: BaseException | None = None
        if self.is_first:
            try:
                answer = ["done", work()]
            except BaseException as raised:
                error = raised
        with exchanging():
            dist.broadcast_object_list(answer, 0)
        if error is not None:
            raise error
        if answer[0] == "failed":
            raise FailedElsewhereError("the first process has failed, and says why")
        return answer[1]

    @exchanging()
    def put_together(self, rows: Tensor | None, lengths: Sequence[int], width: int) -> Tensor:
        """Add up rows that are zero where another process has them, which changes no number."""
        whole = torch.zeros(sum(lengths), width, device=self._device)
        if rows is not None:
            start = sum(lengths[: self._ranks.rank])
            whole[start : start + len(rows)] = rows.to(self._device)
        dist.all_reduce(whole)
        return whole.cpu()

    def rows_of_all(self, rows: Tensor, count: int) -> Tensor:
        """Send them around."""
        return self._ranks.rows_of_all(rows.to(self._device), count)

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
        """See :class:`OneProcess`."""
        try:
            yield
        except ExchangeError as error:
            raise LostProcessError.explaining(error) from error


def find_processes() -> OneProcess:
    """Return the processes that share a run: all of ``torch.distributed`` if it is initialised, else this one."""
    return OneProcess() if find_ranks(None) is None else ManyProcesses()
