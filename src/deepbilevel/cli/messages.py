"""How commands fail: with one line that says what and what to do, and exit code 1."""

from collections.abc import Generator
from contextlib import contextmanager

import typer


@contextmanager
def errors_as_messages() -> Generator[None]:
    """Turn the errors users can mend into a message; anything else is a bug and keeps its traceback."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
