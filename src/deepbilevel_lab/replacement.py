"""Files that are replaced whole or not at all, whatever happens: an exception, a full disk, a kill, a power cut.

This module knows names, disks and their errors; it does not know what is written.
"""

import errno
import os
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp", re.DOTALL)
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[BinaryIO]:
    """Open a file that takes the place of ``path`` once it is on the disk, and leaves no trace if it cannot be."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path {path} lies in a folder that does not exist; make {path.parent} first")
    # Not `tempfile`, whose files only their owner may read: these are meant to be shared.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        before = "its previous version is intact" if path.exists() else "nothing was left behind"
        what, remedy = "is full", "Free some space"
        if _no_inodes(path):
            what, remedy = "has no room for more files, however small", "Remove some of them"
        raise OSError(
            error.errno,
            f"{path} could not be written because the disk {what} ({error.strerror}); {before}. "
            f"{remedy} and run the same command again",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write ``text`` as UTF-8, whole or not at all."""
    with replacing(path) as stream:
        stream.write(text.encode())


def remove_leftovers(folder: str | os.PathLike[str]) -> list[Path]:
    """Remove what killed processes left half-written in ``folder``, and return it.

    Only for a folder in which nobody else is writing: the file of a live process looks the same.
    """
    folder = Path(folder)
    if not folder.is_dir():
        return []
    leftovers = sorted(p for p in folder.iterdir() if _TEMPORARY.fullmatch(p.name) and p.is_file())
    for path in leftovers:
        path.unlink(missing_ok=True)
    return leftovers


def _no_inodes(path: Path) -> bool:
    """Whether a disk with space has used up the names of its files."""
    if not hasattr(os, "statvfs"):
        return False
    disk = os.statvfs(path.parent)
    return disk.f_files > 0 and disk.f_favail == 0


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk: without this, a power cut may bring the old file back."""
    if os.name == "nt":  # Windows opens no folders
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        # Some network disks cannot do this; the file itself is written, and old or new, it is whole.
        if error.errno not in _NO_FOLDER_SYNC:
            raise
