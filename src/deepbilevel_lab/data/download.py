"""Fetching a published archive: with progress, resumed where it stopped, checked, and unpacked all or nothing.

Half a file never stands under a final name: data goes to ``*.part``, is checked, and is then renamed.
"""

import hashlib
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import cast

_CHUNK = 1 << 20
_TIMEOUT_SECONDS = 60

Progress = Callable[[int, int | None], None]
"""Called with the bytes that have arrived and, where the server says so, with how many there will be."""


@dataclass(frozen=True)
class Archive:
    """A published tar archive, the MD5 its publisher gives, and its size in bytes."""

    url: str
    md5: str
    size: int

    @property
    def file_name(self) -> str:
        """The last part of the address."""
        return self.url.rsplit("/", 1)[1]


def fetch_archive(archive: Archive, directory: Path, progress: Progress) -> Path:
    """Download an archive into ``directory`` and return its path; one that is there and right is not fetched again."""
    target = directory / archive.file_name
    if target.is_file() and _md5(target) == archive.md5:
        return target
    directory.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    _download(archive, part, progress)
    found = _md5(part)
    if found != archive.md5:
        part.unlink()  # resuming a wrong file would keep it wrong
        raise ValueError(
            f"what {archive.url} sent has the MD5 {found}, published is {archive.md5}; it was deleted. "
            "Try again; if it repeats, the file on the server has changed"
        )
    part.replace(target)
    return target


def unpack_archive(path: Path, directory: Path, folder: str) -> Path:
    """Unpack the files of ``folder`` of a tar archive into ``directory``, all or nothing, and return where it is."""
    final = directory / folder
    with tempfile.TemporaryDirectory(dir=directory, prefix=".unpacking-") as scratch:
        inside = Path(scratch) / folder
        inside.mkdir()
        with tarfile.open(path) as tar:
            for member in tar:
                # Plain files right inside the folder and nothing else: no link, no path that leads elsewhere.
                where = PurePosixPath(member.name)
                content = tar.extractfile(member) if member.isfile() and where.parent.name == folder else None
                if content is not None:
                    with (inside / where.name).open("wb") as file:
                        shutil.copyfileobj(content, file, _CHUNK)
        if not any(inside.iterdir()):
            raise ValueError(f"{path} does not hold the folder {folder}; delete it and fetch it again")
        if final.exists():
            shutil.rmtree(final)
        inside.replace(final)
    return final


def _download(archive: Archive, part: Path, progress: Progress) -> None:
    url = archive.url
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with cast(HTTPResponse, urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)) as response:
            if response.status != 206:  # the server sends the whole file
                have = 0
            length = response.headers.get("Content-Length")
            total = None if length is None else have + int(length)
            with part.open("ab" if have else "wb") as file:
                while chunk := response.read(_CHUNK):
                    have += len(chunk)
                    if have > archive.size:
                        break
                    file.write(chunk)
                    progress(have, total)
            if have > archive.size:  # without an end, perhaps
                part.unlink()
                raise ValueError(
                    f"{url} sends more than the {archive.size:,} bytes that are published; what came was deleted. Try "
                    "again; if it repeats, the file on the server has changed"
                )
            if total is not None and have < total:
                raise OSError(f"the connection ended after {have} of {total} bytes")
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send: the part is complete, or longer than the file
            return
        raise OSError(f"{url} answers {error.code} {error.reason}; try again later") from error
    except (OSError, HTTPException) as error:
        raise OSError(f"{url} could not be fetched ({error}); rerun the same command to resume") from error


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
