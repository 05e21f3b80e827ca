"""State as plain JSON values and named tensors, these as the bytes of a safetensors file, and all of it back.

This module knows Python's plain types, tensors and the safetensors package; it does not know disks, and refuses
anything that would need code to come back, such as functions and objects.
"""

import json
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

_DEEPEST = 64  # levels; far beyond any state, and well within what a JSON reader can follow
_RESERVED = "__metadata__"  # safetensors files keep this name to themselves
_MOST_DIMENSIONS = 64  # the limit of torch's kernels; it makes a tensor of more, and then stumbles over it
ENTRY = "deepbilevel"
"""Where a file says what it is: one entry, because safetensors writes several in random order."""

# Whatever JSON has no word for stands in an object with one key, one of these.
_TENSOR, _TUPLE, _FLOAT = "$tensor", "$tuple", "$float"
# The schedules of torch keep counters, its networks ordered dictionaries.
_DICTS: dict[str, type[dict[Any, Any]]] = {"$dict": dict, "$ordered": OrderedDict, "$counter": Counter}
_DICT_TAGS = {kind: tag for tag, kind in _DICTS.items()}


def pack(tree: Any) -> tuple[Any, dict[str, Tensor]]:
    """Split nested state into JSON values and tensors, the latter named by where they stand.

    A tensor is detached, and copied only where it must be: to the CPU, or to become contiguous.

    >>> pack({"lr": 0.1, "betas": (0.9, 0.99), "state": {0: {"step": torch.tensor(3)}}})[0]
    {'lr': 0.1, 'betas': {'$tuple': [0.9, 0.99]}, 'state': {'$dict': [[0, {'step': {'$tensor': 'state.0.step'}}]]}}
    """
    tensors: dict[str, Tensor] = {}
    return _pack(tree, (), tensors), tensors


def unpack(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Put together what :func:`pack` split."""
    if isinstance(plain, list):
        return [unpack(value, tensors) for value in cast(list[Any], plain)]
    if not isinstance(plain, dict):
        return plain
    content = cast(dict[str, Any], plain)
    tag = next(iter(content), "")
    if not tag.startswith("$"):
        return {key: unpack(value, tensors) for key, value in content.items()}
    value = content[tag]
    if tag == _TENSOR:
        return tensors[value]
    if tag == _TUPLE:
        return tuple(unpack(value, tensors))
    if tag == _FLOAT:
        return float(value)
    if tag in _DICTS:
        return _DICTS[tag]({key: unpack(inner, tensors) for key, inner in value})
    raise ValueError(f"plain holds the unknown mark {tag!r}; it was packed by a newer version of deepbilevel")


def to_bytes(tensors: Mapping[str, Tensor], about: str) -> bytes:
    """Return a safetensors file of contiguous tensors on the CPU; the same content is the same file."""
    alone: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        if not _can_be_held(tensor.dtype):
            raise TypeError(f"{name} is of {tensor.dtype}, which safetensors files cannot hold; convert it first")
        storage = tensor.untyped_storage().data_ptr()
        alone[name] = tensor.clone() if storage in storages else tensor  # the package refuses what shares memory
        storages.add(storage)
    return find_safetensors().torch.save(alone, {ENTRY: about})


def from_bytes(content: bytes) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the entries and the tensors of a safetensors file; raise ValueError if it is damaged.

    Of bytes and not of a file, which the package would map into memory: there a bad sector kills the process.
    """
    package = find_safetensors()
    try:
        tensors = cast(dict[str, Tensor], package.torch.load(content))
    except (package.SafetensorError, KeyError, TypeError) as error:  # the latter two: of types it knows by name only
        raise ValueError(f"it is cut short, or no safetensors file ({error})") from error
    if any(tensor.dim() > _MOST_DIMENSIONS for tensor in tensors.values()):
        raise ValueError("one of its tensors has an impossible shape")
    # The package has checked the header, but gives its entries away for files only.
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header.get(_RESERVED) or {}, tensors


def find_safetensors() -> ModuleType:
    """Return the safetensors package, or say how to install it."""
    try:
        import_module("safetensors.torch")
        return import_module("safetensors")
    except ImportError as error:
        raise ImportError(
            "checkpoints and trained networks need safetensors; run: pip install 'deepbilevel[cli]'"
        ) from error


@cache
def _can_be_held(dtype: torch.dtype) -> bool:
    """Tell whether the installed package writes and reads tensors of this type; some it only writes."""
    package = find_safetensors()
    try:
        package.torch.load(package.torch.save({"empty": torch.empty(0, dtype=dtype, device="cpu")}))
    except (KeyError, package.SafetensorError):
        return False
    return True


def _pack(value: Any, path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    if len(path) > _DEEPEST:
        raise ValueError(f"{_name(path[:3])}... is nested more than {_DEEPEST} levels deep; does it contain itself?")
    # Types are compared exactly: a subclass, such as a number of numpy, would come back as something else.
    kind = cast(type[Any], type(value))
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if isinstance(value, Tensor):
        return {_TENSOR: _add(value, path, tensors)}
    if kind in (list, tuple):
        items = [_pack(item, (*path, str(i)), tensors) for i, item in enumerate(value)]
        return items if kind is list else {_TUPLE: items}
    if kind in _DICT_TAGS:
        return _pack_dict(value, path, tensors)
    raise TypeError(
        f"{_name(path)} is a {kind.__module__}.{kind.__qualname__}, which cannot be stored without code; make it of "
        "dict, list, tuple, None, bool, int, float, str and tensors"
    )


def _pack_dict(value: dict[Any, Any], path: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    pairs: list[list[Any]] = []
    for key, inner in value.items():
        if type(key) not in (str, int):
            raise TypeError(f"{_name(path)} has the key {key!r}; only str and int can be stored as keys")
        pairs.append([key, _pack(inner, (*path, str(key)), tensors)])
    if type(value) is dict and all(type(key) is str and not key.startswith("$") for key in value):
        return dict(pairs)
    return {_DICT_TAGS[type(value)]: pairs}


def _add(tensor: Tensor, path: tuple[str, ...], tensors: dict[str, Tensor]) -> str:
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise TypeError(f"{_name(path)} is a sparse, quantised or meta tensor; store a dense one that has values")
    name = ".".join(path)
    while name in tensors or name == _RESERVED:  # {"a.b": x, "a": {"b": y}}
        name += "~"
    tensors[name] = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return name


def _name(path: tuple[str, ...]) -> str:
    return ".".join(path) or "the state itself"
