"""Noisy labels as a file, so that others train on the same ones: the labels, the truth, and where they come from.

The file is a numpy archive without pickles: opening one from a stranger runs none of their code. The same content
gives the same bytes, as far as zlib does: numpy dates every entry to 1980.
"""

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from deepbilevel_lab.noise.noisy_labels import NoisyLabels, read_rate, read_seed
from deepbilevel_lab.regular_files import read_regular
from deepbilevel_lab.replacement import replacing

_FORMAT = 1
_TYPES = {"labels": "<i8", "clean_labels": "<i8", "flipped": "|b1"}
_LARGEST = 2**31  # bytes unpacked: a hundred million labels; a small file can claim to hold far more


@dataclass(frozen=True)
class Provenance:
    """Where noisy labels come from.

    Attributes:
        kind: how they were made, such as a kind of the catalog, "matrix" or "model".
        dataset: which images they belong to, in which order, such as "CIFAR-10 train".
        rate: the rate that was asked for, if one was.
        seed: the seed, if there was one.
        note: anything else somebody would need to make them again.
        version: the version of this package that made them.
    """

    kind: str
    dataset: str
    rate: float | None = None
    seed: int | None = None
    note: str = ""
    version: str = field(default_factory=lambda: metadata.version("deepbilevel"))

    def __post_init__(self) -> None:
        for name in ("kind", "dataset", "note", "version"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be text, got {getattr(self, name)!r}")
        if self.rate is not None:
            object.__setattr__(self, "rate", read_rate(self.rate))
        if self.seed is not None:
            object.__setattr__(self, "seed", read_seed(self.seed))


def save_noisy_labels(path: str | os.PathLike[str], noisy: NoisyLabels, provenance: Provenance) -> None:
    """Write noisy labels to a file, whole or not at all."""
    arrays = {name: np.asarray(getattr(noisy, name)).astype(form) for name, form in _TYPES.items()}
    about = {"format": _FORMAT, "num_classes": noisy.num_classes, "provenance": asdict(provenance)}
    signed = _canonical({**about, "sha256": _checksum(arrays, about)})
    entries: dict[str, Any] = {**arrays, "about": np.array(signed)}
    with replacing(path) as stream:
        np.savez_compressed(stream, **entries)


def load_noisy_labels(path: str | os.PathLike[str]) -> tuple[NoisyLabels, Provenance]:
    """Read what :func:`save_noisy_labels` wrote; anything else is refused with an error that names the file."""
    stream = io.BytesIO(read_regular(path))
    try:
        return _read(stream)
    # A damaged or hostile file can fail in every layer below: zip, zlib, numpy's header, JSON, our own checks.
    except Exception as error:
        raise ValueError(
            f"{os.fspath(path)} is not a sound file of noisy labels: {error}. Fetch it again, or make it again with "
            "save_noisy_labels"
        ) from error


def _read(stream: BinaryIO) -> tuple[NoisyLabels, Provenance]:
    # Left to guess, numpy takes a file it does not know for a pickle and advises to trust it.
    if stream.read(4) != b"PK\x03\x04":
        raise ValueError("it is not a numpy archive")
    stream.seek(0)
    archive: NpzFile = np.load(stream, allow_pickle=False)
    with archive:
        if sorted(archive.files) != sorted([*_TYPES, "about"]):
            raise ValueError(f"it holds {sorted(archive.files)}, expected {sorted([*_TYPES, 'about'])}")
        size = sum(entry.file_size for entry in archive.zip.infolist()) if archive.zip else 0
        if size > _LARGEST:
            raise ValueError(f"it unpacks to {size:,} bytes, more than {_LARGEST:,}")
        about = json.loads(str(archive["about"]))
        arrays = {name: np.asarray(archive[name]) for name in _TYPES}
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}, the one this version of deepbilevel reads")
    for name, form in _TYPES.items():
        if arrays[name].dtype != np.dtype(form) or arrays[name].shape != (len(arrays["labels"]),):
            raise ValueError(f"its {name} have shape {arrays[name].shape} of {arrays[name].dtype}")
    if about.pop("sha256", None) != _checksum(arrays, about):
        raise ValueError("its checksum does not match its content")
    noisy = NoisyLabels(arrays["labels"], arrays["clean_labels"], about["num_classes"])
    if not np.array_equal(noisy.flipped, arrays["flipped"]):
        raise ValueError("flipped does not say where labels and clean_labels differ")
    return noisy, Provenance(**about["provenance"])


def _checksum(arrays: Mapping[str, npt.NDArray[Any]], about: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(_canonical(about).encode())
    for name in _TYPES:
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _canonical(about: Mapping[str, Any]) -> str:
    return json.dumps(about, sort_keys=True, allow_nan=False)
