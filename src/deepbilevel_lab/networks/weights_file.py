"""Weights from a file: read without running code that may be in it, and checked against a network name by name.

This module knows file formats and state dictionaries; it does not know which network it fills.
"""

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_SHOWN = 5


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dictionary from a ``.safetensors``, ``.pt`` or ``.pth`` file, onto the CPU."""
    path = Path(path)
    readers = {".safetensors": _read_safetensors, ".pt": _read_torch, ".pth": _read_torch}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"path must end in {', '.join(readers)}, got {str(path)!r}")
    if not path.is_file():
        raise FileNotFoundError(f"path names no file: {str(path)!r}")
    return _checked(reader(path), path)


def fill_network(network: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Copy ``weights`` into ``network``; if a name or a shape does not fit, say which and change nothing.

    BatchNorm's counter of forward passes may be missing: files written before torch 0.4.1 have none.
    """
    expected = network.state_dict()
    counters = {name: value for name, value in expected.items() if name.endswith(".num_batches_tracked")}
    given = {**counters, **weights}
    misshapen = [
        f"{name} is {list(given[name].shape)} instead of {list(expected[name].shape)}"
        for name in expected
        if name in given and given[name].shape != expected[name].shape
    ]
    # Copying would turn the codes of a quantised file into weights without a word.
    mistyped = [
        f"{name} is {given[name].dtype} instead of {expected[name].dtype}"
        for name in expected
        if name in given and given[name].is_floating_point() != expected[name].is_floating_point()
    ]
    problems = [
        *_problem("missing", [name for name in expected if name not in given]),
        *_problem("unexpected", [name for name in given if name not in expected]),
        *_problem("of another shape", misshapen),
        *_problem("of another type", mistyped),
    ]
    if problems:
        raise ValueError(f"the weights of {source} do not fit {type(network).__name__}: {'; '.join(problems)}")
    network.load_state_dict(given)


def _problem(kind: str, names: list[str]) -> Iterable[str]:
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        yield f"{len(names)} {kind}: {', '.join(names[:_SHOWN])}{more}"


def _read_safetensors(path: Path) -> Any:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError("reading .safetensors needs safetensors; run: pip install 'deepbilevel[cli]'") from error
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is damaged, or no safetensors file: {error}; fetch it again") from error


def _read_torch(path: Path) -> Any:
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
        # CVE-2025-32434: until then a crafted file could run code in spite of weights_only.
        raise RuntimeError(
            f"reading {path.suffix} files is not safe with torch {torch.__version__}; "
            "install torch 2.6 or newer, or convert the file to .safetensors"
        )
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{str(path)!r} was refused: it is damaged, or holds Python objects besides tensors, which could run any "
            "code; ask for a file written by torch.save(network.state_dict(), path), or for .safetensors"
        ) from error
    except OSError:
        raise
    except Exception as error:  # torch reads damaged bytes as if they were whole, and may stumble over anything
        raise ValueError(f"{str(path)!r} is damaged, or no file of torch.save: {error}; fetch it again") from error


def _checked(content: Any, path: Path) -> dict[str, Tensor]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{str(path)!r} holds a {type(content).__name__}, expected names with their tensors")
    weights: dict[str, Tensor] = {}
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(
                f"{str(path)!r} holds a {type(value).__name__} under {name!r}, expected tensors alone; "
                "if the weights lie deeper, save that part on its own"
            )
        weights[name] = value
    return weights
