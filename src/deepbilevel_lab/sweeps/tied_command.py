"""The command itself as a process of this machine. Knows no trial and no queue, and loads no torch.

It is given its spec on its input and answers in JSON: what is killed, resumed or inspected is an ordinary run. Its
input stays open as long as it is wanted (``cli/tie.py``), so that no process outlives this one.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, cast

from deepbilevel_lab.records import Row, from_json

if TYPE_CHECKING:
    from deepbilevel_lab.sweeps.trials import Ending

_INTERRUPTED = 130


@dataclass(frozen=True)
class _Message:
    text: str


@dataclass(frozen=True)
class _Started:
    epoch: int


@dataclass(frozen=True)
class _Progress:
    epoch: int
    share: float


@dataclass(frozen=True)
class _Done:
    folder: str
    final: Row
    best: Row


_EVENTS = {"message": _Message, "started": _Started, "progress": _Progress, "epoch": Row, "done": _Done}
"""The events of ``deepbilevel train --json``, with what those who are told need of each."""


@dataclass(frozen=True)
class End:
    """How a run ended; ``error`` says why it failed, ``killed`` that it did not fail by itself."""

    ending: "Ending"
    error: str | None = None
    killed: bool = False


class TiedCommand:
    """A run under way; see :class:`~deepbilevel_lab.sweeps.trials.Job`.

    Args:
        spec: the run, as one line of JSON.
        options: of ``deepbilevel train``.
        tell: is told every event and, last and always, the end; from another thread.
        apart: out of reach of what is sent to the processes of whoever starts it, Ctrl-Z in a terminal for instance.
    """

    queued = False

    def __init__(
        self,
        spec: str,
        options: Sequence[str],
        tell: "Callable[[dict[str, Any] | End], None]",
        *,
        apart: bool = False,
    ) -> None:
        # Not `-m deepbilevel`, which is the library: it would load torch before the command reads its input.
        command = [sys.executable, "-m", "deepbilevel_lab", "train", "--spec", "-", "--tied", "--json", *options]
        # A terminal's signals reach all processes; this one answers for those that still import and cannot save yet.
        with _terminal_withheld():
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",  # whatever the user's code prints: who listens must hear the end
                start_new_session=apart,
            )
        self._input = cast(IO[str], self._process.stdin)
        self._tell = tell
        with suppress(BrokenPipeError):  # gone already; its exit code tells
            self._input.write(spec + "\n")
            self._input.flush()
        Thread(target=self._listen, daemon=True).start()

    def stop(self) -> None:
        """Ask it to save and end."""
        with suppress(OSError):
            self._input.close()

    def kill(self) -> None:
        """End it at once; it has its checkpoints."""
        self._process.kill()

    def _listen(self) -> None:
        complaints: list[str] = []
        beside = Thread(target=self._listen_beside, args=(complaints,), daemon=True)
        beside.start()
        with cast(IO[str], self._process.stdout) as lines:
            for line in lines:
                self._tell(_event(line))
        beside.join()
        code = self._process.wait()
        self.stop()
        self._tell(_end(code, complaints))

    def _listen_beside(self, complaints: list[str]) -> None:
        with cast(IO[str], self._process.stderr) as lines:
            for line in lines:
                complaints.append(line.rstrip())
                self._tell({"event": "complaint", "text": line.rstrip()})


def _event(line: str) -> dict[str, Any]:
    """Return what a line says; one that is no event of ours is a message, for the user's code may print anything."""
    try:
        said: Any = json.loads(line)
        from_json(_EVENTS[said["event"]], said)
    except (ValueError, LookupError, TypeError, RecursionError):  # cut short by a kill, or not said by us
        return {"event": "message", "text": line.rstrip()}
    return said


def _end(code: int, complaints: list[str]) -> End:
    if code == 0:
        return End("done")
    # A process that has hardly begun knows no better than to die of the signal.
    if code in (_INTERRUPTED, -signal.SIGTERM):
        return End("interrupted")
    return End("failed", _reason(complaints, code), killed=code < 0)


def _reason(complaints: list[str], code: int) -> str:
    errors = [line.removeprefix("error: ") for line in complaints if line.startswith("error: ")]
    said = errors or [line for line in complaints if line.strip()]
    return said[-1] if said else f"its process ended with code {code} and said nothing"


@contextmanager
def _terminal_withheld() -> Generator[None]:
    """Let a process that is started now be born with a terminal's signals withheld, until ``cli/tie.py`` ignores them.

    Blocked and not ignored here: a Ctrl-C that comes while a process starts is heard by this one all the same.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
