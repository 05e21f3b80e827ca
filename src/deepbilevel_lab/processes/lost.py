"""Another process is gone or does not answer: telling that from all other errors, and saying what to do."""

import traceback
from pathlib import Path

import torch

from deepbilevel.distributed import ranks
from deepbilevel_lab.processes.one_process import FailedElsewhereError, LostProcessError


def is_of_exchange(error: RuntimeError) -> bool:
    """Whether torch raised it in an exchange: all exchange is called from this room, or by the library's ``Ranks``."""
    if isinstance(error, torch.OutOfMemoryError | LostProcessError | FailedElsewhereError):
        return False
    library, room = (Path(each).parent for each in (torch.__file__, __file__))
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    callers = [file for file in files if library not in file.parents]
    return bool(callers) and (callers[-1].parent == room or callers[-1] == Path(ranks.__file__))


def explain(error: RuntimeError) -> str:
    """Say in the place of torch's own words what has happened, and what to do."""
    after = "The same command goes on from the last checkpoint"
    if "timed out" in str(error).lower() or "timeout" in str(error).lower():
        return (
            "another process of this run has not answered within the time-out: it hangs, or is slower than --timeout "
            f"allows. See what it does, end what is left of it, and take a larger --timeout if it is only slow. {after}"
        )
    return f"another process of this run is gone; look for its own message, or for who killed it. {after}"
