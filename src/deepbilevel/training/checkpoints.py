"""Checkpoints of a run that survive kills, full disks and damaged files, and cannot carry code.

This module knows the folder, the file and its checksum; it does not know what the state means. A checkpoint is a
safetensors file, readable by other tools. It is written and read here, not by the safetensors package, for three
reasons: the package does not say which error a disk gave; it maps files into memory, where a bad sector kills the
process instead of raising; and its tensors would hang on the file.
"""

import hashlib
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from deepbilevel.replacement import remove_leftovers, replacing
from deepbilevel.training.packing import pack, unpack

_FORMAT = "1"
_NAME = re.compile(r"step-([0-9]{8,})\.safetensors")
_LONGEST_HEADER = 100_000_000  # bytes; the limit of safetensors itself
_MOST_DIMENSIONS = 64  # the limit of torch
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


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

    def paths(self) -> list[Path]:
        """Return the checkpoints by their names, the newest first; whether they are sound is not looked at."""
        if not self.folder.is_dir():
            return []
        return sorted((p for p in self.folder.iterdir() if _NAME.fullmatch(p.name)), key=_step_of, reverse=True)

    def save(self, step: int, state: Mapping[str, Any]) -> Path:
        """Write a checkpoint, whole or not at all, then remove those that are older than the newest ``keep``.

        Networks' and optimizers' tensors are written from where they lie: on the CPU, saving takes no second copy.
        """
        step = _whole("step", step, at_least=0)
        header, tensors = _describe(step, state)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self.folder)  # a run that is killed while saving, again and again, must not fill the disk
        path = self.folder / f"step-{step:08d}.safetensors"
        with replacing(path) as stream:
            stream.write(len(header).to_bytes(8, "little") + header)
            for tensor in tensors:
                stream.write(_bytes_of(tensor))
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
            # A damaged or hostile file can fail anywhere: the disk, JSON, its depth, memory, torch, our own checks.
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


def _describe(step: int, state: Mapping[str, Any]) -> tuple[bytes, list[Tensor]]:
    """Return the header of the file, and the tensors in the order in which they follow."""
    plain, found = pack(dict(state))
    # As safetensors does it: the widest first, so that every number is aligned.
    tensors = dict(sorted(found.items(), key=lambda item: (-item[1].element_size(), item[0])))
    about = {"format": _FORMAT, "step": str(step), "state": _canonical(plain)}
    header: dict[str, Any] = {"__metadata__": about}
    position = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPE_NAMES:
            raise TypeError(f"{name} is of {tensor.dtype}, which safetensors files cannot hold; convert it first")
        end = position + tensor.nbytes
        header[name] = {
            "dtype": _DTYPE_NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    about["sha256"] = _checksum(header, map(_bytes_of, tensors.values()))
    encoded = _encode(header)
    if len(encoded) > _LONGEST_HEADER:
        raise ValueError(
            f"state holds {len(encoded):,} bytes besides its tensors; a file takes {_LONGEST_HEADER:,} at the most: "
            "make tensors of long lists of numbers"
        )
    return encoded, list(tensors.values())


def _load(path: Path) -> tuple[int, dict[str, Any]]:
    if not path.is_file():  # opening a pipe would wait for ever
        raise ValueError("it is not a file")
    with path.open("rb") as stream:
        header = _read_header(stream)
        about = header["__metadata__"]
        signature = about.pop("sha256", None)
        # Memory is taken for what the file was seen to hold, and for nothing that it claims.
        tensors = {name: _read_tensor(stream, entry) for name, entry in header.items() if name != "__metadata__"}
    if signature != _checksum(header, map(_bytes_of, tensors.values())):
        raise ValueError("its checksum does not match its content")
    if int(about["step"]) != _step_of(path):
        raise ValueError(f"it was saved at step {about['step']} and has been renamed")
    state = unpack(json.loads(about["state"]), tensors)
    if not isinstance(state, dict):
        raise ValueError(f"its state is a {type(state).__name__}")
    return _step_of(path), cast(dict[str, Any], state)


def _read_header(stream: BufferedReader) -> dict[str, Any]:
    """Read the header and check that it describes the rest of the file, byte for byte."""
    room = os.fstat(stream.fileno()).st_size - 8
    length = int.from_bytes(stream.read(8), "little")
    if not 0 < length <= min(room, _LONGEST_HEADER):
        raise ValueError("it is cut short, or no safetensors file")
    raw = stream.read(length)
    header = json.loads(raw.decode())
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
        raise ValueError("it is no checkpoint")
    if header["__metadata__"].get("format") != _FORMAT:
        raise ValueError(f"its format is {header['__metadata__'].get('format')!r}, this version reads {_FORMAT!r}")
    if _encode(header) != raw:
        raise ValueError("its header is not as it was written")
    position = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if begin != position or end - begin != _size_of(entry):
            raise ValueError(f"its tensor {name} has another size than its shape")
        position = end
    if position != room - length:
        raise ValueError(f"it holds {room - length} bytes of tensors instead of {position}")
    return header


def _size_of(entry: Mapping[str, Any]) -> int:
    shape = cast(list[int], entry["shape"])
    if len(shape) > _MOST_DIMENSIONS or not all(type(count) is int and count >= 0 for count in shape):
        raise ValueError("one of its tensors has an impossible shape")
    return math.prod(shape) * _DTYPES[entry["dtype"]].itemsize


def _read_tensor(stream: BufferedReader, entry: Mapping[str, Any]) -> Tensor:
    begin, end = entry["data_offsets"]
    content = torch.empty(end - begin, dtype=torch.uint8, device="cpu")
    if stream.readinto(content.numpy().data) != end - begin:
        raise ValueError("it is cut short")
    return content.view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _bytes_of(tensor: Tensor) -> memoryview:
    # Not `reshape(-1)`: a single number cut out of a row keeps its stride, and cannot be seen as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


def _checksum(header: Mapping[str, Any], contents: Iterable[memoryview]) -> str:
    # The byte order is signed too: read in another one, the same bytes would be other numbers.
    digest = hashlib.sha256(sys.byteorder.encode() + _encode(header))
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def _encode(header: Mapping[str, Any]) -> bytes:
    text = _canonical(header)
    return text.ljust(-(-len(text) // 8) * 8).encode()  # tensors begin at a multiple of eight


def _canonical(content: Any) -> str:
    # Keys are not sorted: the order of a dictionary is part of the state.
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _whole(name: str, value: int, *, at_least: int) -> int:
    if type(value) is not int or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")
    return value
