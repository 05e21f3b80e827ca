"""Files that are read whole, and are files: a FIFO would wait for ever, a device has no end."""

import os
import stat
from pathlib import Path


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file, or of one that a link leads to.

    Raises:
        ValueError: it is a FIFO, a device or a socket.
        OSError: as ``Path.read_bytes`` does.
    """
    path = Path(path)
    _check(path, path.stat().st_mode)  # opening alone can do something, where it is a device
    # Should somebody have put another file there meanwhile: opening a FIFO waits, unless told not to.
    with open(path, "rb", opener=_open_at_once) as stream:
        _check(path, os.fstat(stream.fileno()).st_mode)
        return stream.read()


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has neither the flag nor FIFOs in folders


def _check(path: Path, mode: int) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of folders, opening says what is wrong
        raise ValueError(
            f"{path} is a FIFO, a device or a socket, not a file; remove it, or copy its content to a file"
        )
