"""How commands end: with one line that says what went wrong and what to do, and an exit code that says which kind.

0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

import signal
from collections.abc import Generator
from contextlib import contextmanager

import typer

from deepbilevel_lab.records import clean

_LONGEST = 4_000  # characters
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
    except (ValueError, OSError, ImportError, *others) as error:
        if not silent:
            typer.echo(f"error: {clean(_shortened(str(error)))}", err=True)
        raise typer.Exit(code) from error


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
