"""A cheap fingerprint of one's own data: names, sizes and labels, without reading a single image.

Where it lies says little: there are many folders called ``photos``, and a table can be edited. This module knows files
and how they name others; how they are loaded is the business of the catalog.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from deepbilevel_lab.data.image_files import IMAGE_SUFFIXES, read_table
from deepbilevel_lab.regular_files import read_regular

_LENGTH = 16


def take_fingerprint(*places: Path) -> str | None:
    """Return what tells the content of folders and tables from other content; None if something cannot be read.

    A folder counts with the names of its images, which say their labels, and their sizes; a table with its text and the
    sizes of the files in its column ``path``.
    """
    digest = hashlib.sha256()
    try:
        for place in places:
            for part in _parts_of_folder(place) if place.is_dir() else _parts_of_file(place):
                digest.update(len(part).to_bytes(8, "little") + part)
    except OSError:
        return None  # whoever loads it will say what is wrong
    return digest.hexdigest()[:_LENGTH]


def _parts_of_folder(folder: Path) -> Iterable[bytes]:
    files = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    for path in sorted(path for path in files if not path.name.startswith(".")):
        yield _described(path, path.relative_to(folder).as_posix())


def _parts_of_file(table: Path) -> Iterable[bytes]:
    yield read_regular(table)
    rows: list[dict[str, str]] = []
    with suppress(ValueError):  # another format, which has no paths, or a damaged one
        _, rows = read_table(table)
    for row in rows:
        if row.get("path"):
            yield _described(table.parent / row["path"], row["path"])


def _described(path: Path, name: str) -> bytes:
    size = path.stat().st_size if path.is_file() else -1
    return f"{name}\0{size}".encode(errors="surrogateescape")
