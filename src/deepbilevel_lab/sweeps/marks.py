"""A file in the folder of runs, by which other machines see that it is the same folder; it stays while it is needed."""

import uuid
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_NAME = ".seen-by-all-nodes-"


@contextmanager
def standing_mark(folder: Path) -> Generator[Path]:
    """Make a mark and remove it in the end, as well as marks of processes that were killed.

    A mark is locked as long as its process lives, on whatever machine.
    """
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{_NAME}*"):
        with suppress(Timeout, OSError), FileLock(old, timeout=0):  # or somebody is at it, or nobody can know
            old.unlink()
    mark = folder / f"{_NAME}{uuid.uuid4().hex}"
    lock = FileLock(mark, timeout=0)
    with suppress(OSError):  # a disk without locks: the mark then stays after a kill, which harms nobody
        lock.acquire()
    mark.touch()
    try:
        yield mark
    finally:
        with suppress(OSError):
            mark.unlink()
        lock.release()
