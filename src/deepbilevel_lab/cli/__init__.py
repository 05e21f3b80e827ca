"""The ``deepbilevel`` command. Nothing here imports torch before a command needs it, so help is immediate."""

import sys
from importlib import import_module


def main() -> None:
    """Run the command line, or say what to install."""
    try:
        import_module("rich")  # commands load it later; its absence should be said now
        from deepbilevel_lab.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich"}:
            raise
        sys.exit(f"the deepbilevel command needs {error.name}; run: pip install 'deepbilevel[cli]'")
    try:
        app()
    except RuntimeError as error:
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        sys.exit(130)  # Ctrl-C while a class of another package was made: Python 3.11 and before wrap it
