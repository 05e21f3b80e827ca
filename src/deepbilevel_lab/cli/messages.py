"""How commands end: with one line that says what went wrong and what to do, and an exit code that says which kind.

0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import errno
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

import typer

from deepbilevel_lab.records import clean

_LONGEST = 4_000  # characters
_REMEDIES = {
    errno.ENOLCK: "that disk cannot lock files, which keeps two processes apart: choose another one with --out",
    errno.ENOSPC: "free some space, or remove files if `df -i` shows no free inodes, and run the same command again",
    errno.EDQUOT: "free some space of your quota, and run the same command again",
    errno.EMFILE: "raise the limit of open files with `ulimit -n`, or take fewer --workers or --jobs",
    errno.EROFS: "that disk is read-only: choose another folder with --out",
}
FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


@contextmanager
def errors_as_messages(code: int = FAILED, *others: type[Exception], silent: bool = False) -> Generator[None]:
    """Turn the errors users can mend, and those named, into a message; anything else keeps its traceback.

    Args:
        code: with which the command ends.
        others: more errors that users can mend.
        silent: say nothing, because another process says the same.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # as in `... | head`: whoever read has enough, which is nobody's mistake
    except (ValueError, OSError, ImportError, MemoryError, RuntimeError, *others) as error:
        if isinstance(error, RuntimeError) and not isinstance(error, others) and not _lacks_memory(error):
            raise
        if not silent:
            typer.echo(f"error: {clean(_shortened(str(error) + _remedy(error)))}", err=True)
        raise typer.Exit(code) from error


def _remedy(error: Exception) -> str:
    """Return what to do about an error that comes from the system as it is, after what it says."""
    if _lacks_memory(error):
        return "; memory is missing: take a smaller group.batch_size or network, or fewer --workers or --jobs"
    if not isinstance(error, OSError) or error.errno is None or error.strerror != os.strerror(error.errno):
        return ""
    return f"; {_REMEDIES[error.errno]}" if error.errno in _REMEDIES else ""


def _lacks_memory(error: Exception) -> bool:
    """Whether memory was missing; torch says so by a RuntimeError, on the CPU by its text alone."""
    is_told = "allocate memory" in str(error) or type(error).__name__ == "OutOfMemoryError"
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and is_told)


def _shortened(text: str) -> str:
    """Return a message of which a stranger's file may have written megabytes: its beginning and its end."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


@contextmanager
def last_words() -> Generator[None]:
    """Let Ctrl-C be heard by a run that listens inside, and cut off nothing that is said after it."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)
    ending = False
    try:
        yield
    except typer.Exit as stop:
        ending = stop.exit_code == INTERRUPTED  # nothing is left but the end of the process, which needs no hurry
        raise
    finally:
        if not ending:
            signal.signal(signal.SIGINT, before)
