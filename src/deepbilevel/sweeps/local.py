"""Trials as processes of this machine.

Each is the command itself, given its spec on its input and answering in JSON: what is killed, resumed or inspected is
an ordinary run. Its input stays open as long as it is wanted (``cli/tie.py``), so that no process outlives this one.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from threading import Thread, current_thread, main_thread
from typing import IO, Any, cast

from deepbilevel.specs import canonical_json
from deepbilevel.sweeps.trials import Ending, News, Trial
from deepbilevel.training.folder import RunFolder
from deepbilevel.training.run import SAVE_SECONDS
from deepbilevel.training.spec import RunSpec

_INTERRUPTED = 130


class LocalProcesses:
    """An executor; see :class:`~deepbilevel.sweeps.trials.Executor`.

    Args:
        out: the folder of runs.
        data_dir: where data sets stand.
        workers: processes of a run that decode image files.
        save_seconds: between two checkpoints at the most.
        resume: go on with what is there, or move it aside and start anew.
    """

    def __init__(
        self, out: Path, data_dir: Path, *, workers: int = 0, save_seconds: float = SAVE_SECONDS, resume: bool = True
    ) -> None:
        self.out = out
        self._resume = resume
        options = ["--out", out, "--data-dir", data_dir, "--workers", workers, "--save-seconds", save_seconds]
        self._options = [*map(str, options), "--resume" if resume else "--no-resume"]

    def find_finished(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the record of a run that is finished and need not be run again."""
        folder = RunFolder.of(spec, self.out)
        with suppress(ValueError, OSError):  # damaged, or out of reach: the run itself will say so
            return folder.read_record() if self._resume and folder.finished() else None

    def find_record(self, spec: RunSpec) -> dict[str, Any] | None:
        """Return the record of a run as it stands."""
        with suppress(ValueError, OSError):
            return RunFolder.of(spec, self.out).read_record()

    def place_of(self, spec: RunSpec) -> str:
        """Return the folder of a run."""
        return str(RunFolder.of(spec, self.out).path)

    def start(self, trial: Trial, news: "Queue[News]") -> "Process":
        """Start a process."""
        command = [sys.executable, "-m", "deepbilevel", "train", "--spec", "-", "--tied", "--json", *self._options]
        # Ctrl-C reaches all processes; this one answers for those that still import and cannot save yet.
        with _ctrl_c_ignored():
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        with suppress(BrokenPipeError):  # gone already; its exit code tells
            _input(process).write(canonical_json(trial.spec) + "\n")
            _input(process).flush()
        Thread(target=_listen, args=(trial, process, news), daemon=True).start()
        return Process(process)


class Process:
    """A job; see :class:`~deepbilevel.sweeps.trials.Job`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def stop(self) -> None:
        """Ask it to save and end."""
        with suppress(OSError):
            _input(self._process).close()

    def kill(self) -> None:
        """End it at once; it has its checkpoints."""
        self._process.kill()


def _listen(trial: Trial, process: "subprocess.Popen[str]", news: "Queue[News]") -> None:
    complaints: list[str] = []
    beside = Thread(target=_listen_beside, args=(trial, process, complaints, news), daemon=True)
    beside.start()
    with cast(IO[str], process.stdout) as lines:
        for line in lines:
            try:
                event: Any = json.loads(line)
            except ValueError:  # cut short by a kill, or not said by us
                event = {"event": "message", "text": line.rstrip()}
            news.put(News(trial, event))
    beside.join()
    code = process.wait()
    with suppress(OSError):
        _input(process).close()
    ending = _ending(code)
    error = _reason(complaints, code) if ending == "failed" else None
    news.put(News(trial, ending=ending, error=error))


def _listen_beside(trial: Trial, process: "subprocess.Popen[str]", complaints: list[str], news: "Queue[News]") -> None:
    with cast(IO[str], process.stderr) as lines:
        for line in lines:
            complaints.append(line.rstrip())
            news.put(News(trial, {"event": "complaint", "text": line.rstrip()}))


def _ending(code: int) -> Ending:
    # A process that has hardly begun knows no better than to die of the signal.
    return "done" if code == 0 else "interrupted" if code in (_INTERRUPTED, -signal.SIGTERM) else "failed"


def _reason(complaints: list[str], code: int) -> str:
    errors = [line.removeprefix("error: ") for line in complaints if line.startswith("error: ")]
    said = errors or [line for line in complaints if line.strip()]
    return said[-1] if said else f"its process ended with code {code} and said nothing"


def _input(process: "subprocess.Popen[str]") -> IO[str]:
    return cast(IO[str], process.stdin)


@contextmanager
def _ctrl_c_ignored() -> Generator[None]:
    """Let a process that is started now ignore Ctrl-C; only Python's main thread can."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
