"""How commands end: with one line that says what went wrong and what to do, and an exit code that says which kind.

0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from collections.abc import Generator
from contextlib import contextmanager

import typer

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


@contextmanager
def errors_as_messages(code: int = FAILED, *others: type[Exception]) -> Generator[None]:
    """Turn the errors users can mend, and those named, into a message; anything else keeps its traceback."""
    try:
        yield
    except (ValueError, OSError, ImportError, *others) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(code) from error
