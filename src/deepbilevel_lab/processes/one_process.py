"""The processes of a run, as the training loop sees them: the interface, and its implementation for one process.

Ranks and messages are the business of ``many_processes.py``.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor

Answer = TypeVar("Answer")


class LostProcessError(RuntimeError):
    """Another process of a run is gone, or does not answer."""

    @classmethod
    def explaining(cls, error: RuntimeError) -> "LostProcessError":
        """Return what happened and what to do, in place of torch's message."""
        after = "Rerun the same command to resume from the last checkpoint"
        if "timed out" in str(error).lower() or "timeout" in str(error).lower():
            return cls(
                "another process of this run has not answered within the time-out: it hangs, or is slower than "
                f"--timeout allows. Check what it does, end it, and set a larger --timeout if it is only slow. {after}"
            )
        return cls(f"another process of this run is gone; look for its own message, or for what killed it. {after}")


class FailedElsewhereError(RuntimeError):
    """Another process of a run has failed, and says itself why."""


class OneProcess:
    """The processes that share a run; here there is only one.

    Attributes:
        size: how many there are.
        is_first: whether this is the one that writes files and prints.
    """

    size: int = 1
    is_first: bool = True

    def own(self, count: int) -> range:
        """Return which of ``count`` pieces of work are this process's."""
        return range(count)

    def threads(self, wanted: int) -> int:
        """Return this process's part of the threads of a run."""
        return wanted

    def agree(self, *wishes: bool) -> tuple[bool, ...]:
        """Return for each wish whether any process has it; waits for all processes."""
        return wishes

    def ask_first(self, work: Callable[[], Answer]) -> Answer:
        """Let the first process do something, and return its result in all."""
        return work()

    def put_together(self, rows: Tensor | None, lengths: Sequence[int], width: int) -> Tensor:
        """Return the rows of all processes, one after another.

        Args:
            rows: this process's, float32 on the CPU; nothing if there was nothing left for it.
            lengths: how many rows each process has, as far as there are any left.
            width: the length of a row.
        """
        assert rows is not None
        return rows

    def rows_of_all(self, rows: Tensor, count: int) -> Tensor:
        """Return the rows of ``count`` pieces of work in their order; ``rows`` has those of this process's own."""
        return rows

    def told_by_first(self, error: Exception) -> Exception:
        """Return what to raise if all processes found the same error, so that only one reports it."""
        return error

    @contextmanager
    def succeeding(self) -> Generator[None]:
        """Continue after this block only if it succeeded in all processes; one that failed raises its error."""
        yield

    @contextmanager
    def explaining(self) -> Generator[None]:
        """Turn errors of exchange into :class:`LostProcessError`, which says what to do."""
        yield
