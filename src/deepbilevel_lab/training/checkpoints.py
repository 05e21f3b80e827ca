"""Checkpoints of a run that survive kills, full disks and damaged files, and cannot carry code.

This module knows the folder, the file and its checksum; it does not know what the state means. A checkpoint is a
safetensors file, readable by other tools, with everything but the tensors as JSON in its header. The package makes the
bytes and reads them; writing them to the disk is left to us, who say which error the disk gave.
"""

import hashlib
import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from deepbilevel_lab.replacement import remove_leftovers, replacing
from deepbilevel_lab.training.packing import ENTRY, find_safetensors, from_bytes, pack, to_bytes, unpack

_EARLIER, _FORMAT = "1", "2"
_NAME = re.compile(r"step-([0-9]{8,})\.safetensors")
_BLANK = "0" * 64  # stands where the checksum will
_LONGEST = 40_000_000  # bytes; safetensors escapes them, twice as many at the most, and allows 100 MB with the tensors


def _warn(path: Path, reason: str) -> None:
    warnings.warn(f"passing over the damaged checkpoint {path}: {reason}", stacklevel=3)


class Checkpoints:
    """A folder of checkpoints of which the newest sound one counts.

    Args:
        folder: where they lie; made by the first :meth:`save`. One run alone writes to it.
        keep: how many are kept. With two, one damaged file costs a few steps and not the run.
        on_damaged: told about every file that is passed over, and why; warns unless given.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, keep: int = 2, on_damaged: Callable[[Path, str], None] = _warn
    ) -> None:
        self.folder = Path(folder)
        self.keep = _whole("keep", keep, at_least=1)
        self._on_damaged = on_damaged
        find_safetensors()  # a run that cannot be saved should not begin

    def paths(self) -> list[Path]:
        """Return the checkpoints by their names, the newest first; whether they are sound is not looked at."""
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if _NAME.fullmatch(p.name)), key=_step_of, reverse=True)

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, whole or not at all, then remove those that are older than the newest ``keep``.

        The file is made in memory first, by safetensors, which for a moment holds it twice.
        """
        step = _whole("step", step, at_least=0)
        plain, tensors = pack(dict(state))
        # Keys are not sorted: the order of a dictionary is part of the state.
        about = {"sha256": _BLANK, "format": _FORMAT, "step": step, "state": plain}
        text = json.dumps(about, separators=(",", ":"), allow_nan=False)
        if len(text) > _LONGEST:
            raise ValueError(
                f"state holds {len(text):,} bytes besides its tensors; a file takes {_LONGEST:,} at the most: "
                "make tensors of long lists of numbers"
            )
        before, after = _around(to_bytes(tensors, text), _BLANK)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)  # a run that is killed while saving, again and again, must not fill the disk
        path = self.folder / f"step-{step:08d}.safetensors"
        with replacing(path) as stream:
            for part in (before, _checksum(before, after).encode(), after):
                stream.write(part)
        # A newer one, left by a run that could not read it, must not push out what was just written.
        for old in [p for p in self.paths() if _step_of(p) <= step][self.keep :]:
            old.unlink(missing_ok=True)
        return path

    def load_latest(self) -> tuple[int, dict[str, Any]] | None:
        """Return step and state of the newest sound checkpoint, or None if there is no checkpoint at all.

        Tensors are on the CPU. A damaged file is reported and stays where it is.
        """
        reasons: list[str] = []
        for path in self.paths():
            try:
                return _load(path)
            # A damaged or hostile file can fail anywhere: the disk, safetensors, JSON, its depth, memory, torch, us.
            except Exception as error:
                reason = str(error) or type(error).__name__
            reasons.append(f"{path.name}: {reason}")
            self._on_damaged(path, reason)
        if not reasons:
            return None
        raise ValueError(
            f"folder {self.folder} holds no sound checkpoint ({'; '.join(reasons)}). Put back a copy of one, or move "
            "these files away to start from the beginning"
        )


def _load(path: Path) -> tuple[int, dict[str, Any]]:
    if not path.is_file():  # opening a pipe would wait for ever
        raise ValueError("it is not a file")
    content = path.read_bytes()
    entries, tensors = from_bytes(content)
    if entries.get("format") == _EARLIER:
        about = {**entries, "step": int(entries["step"]), "state": json.loads(entries["state"])}
        signed = _signed_by_version_0_1(content, entries["sha256"])
    else:
        about = json.loads(entries.get(ENTRY, "{}"))
        if about.get("format") != _FORMAT:
            raise ValueError(f"its format is {about.get('format')!r}, this version reads {_EARLIER!r} and {_FORMAT!r}")
        signed = _around(content, about["sha256"])
    if about["sha256"] != _checksum(*signed):
        raise ValueError("its checksum does not match its content")
    if about["step"] != _step_of(path):
        raise ValueError(f"it was saved at step {about['step']} and has been renamed")
    state = unpack(about["state"], tensors)
    if not isinstance(state, dict):
        raise ValueError(f"its state is a {type(state).__name__}")
    return _step_of(path), cast(dict[str, Any], state)


def _around(content: bytes, signature: str) -> tuple[memoryview, memoryview]:
    """Return what is signed: the file up to its checksum, which comes before all that a user could name, and after."""
    begin = content.index(signature.encode())
    return memoryview(content)[:begin], memoryview(content)[begin + len(signature) :]


def _signed_by_version_0_1(content: bytes, signature: str) -> tuple[bytes, bytes, memoryview]:
    """Return what version 0.1 signed: the byte order, the header as it was without the checksum, and the tensors."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = content[8:start].replace(f',"sha256":"{signature}"'.encode(), b"").rstrip(b" ")
    return sys.byteorder.encode(), header.ljust(-(-len(header) // 8) * 8), memoryview(content)[start:]


def _checksum(*parts: bytes | memoryview) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _whole(name: str, value: int, *, at_least: int) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")
    return value
