"""Frozen dataclasses as JSON and back, made from their type hints; what is wrong is an error that names the key.

Unlike a spec, which a person writes and in which every mistake must be found, a record is a measurement: keys this
version does not know are left aside, keys that are missing or null get their defaults, and a number that is not finite
or absurd counts as not measured where the type allows for that. This module does not know which fields a record has.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from deepbilevel_lab.regular_files import read_regular

T = TypeVar("T")

FORMAT = 1
# What XML cannot hold, what a terminal obeys, and halves of characters that UTF-8 cannot.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ABSURD = 1e15
_DEEPEST = 50
_LONGEST_SHOWN = 200  # a damaged record may repeat itself for megabytes
_LEFT_OUT: Mapping[str, bool] = {"left out if None": True}


class FormatError(ValueError):
    """JSON, but no record of a format that this version reads."""


def if_measured() -> Any:
    """Return a field that is None, and no key in the file, where there is nothing to tell."""
    return field(default=None, metadata=_LEFT_OUT)


def clean(text: str) -> str:
    """Return a text that every file format can hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def to_json(value: Any) -> Any:
    """Return a record, or a part of one, as dictionaries, lists and scalars."""
    if is_dataclass(value) and not isinstance(value, type):
        found = ((each, getattr(value, each.name)) for each in fields(value))
        return {
            each.name: to_json(own)
            for each, own in found
            if not (own is None and _LEFT_OUT.items() <= each.metadata.items())
        }
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in cast(Mapping[str, Any], value).items()}
    if isinstance(value, (tuple, list)):
        return [to_json(each) for each in cast(list[Any], value)]
    return value


def to_text(record: Any) -> str:
    """Return what stands in the file of a record."""
    return json.dumps(to_json(record), indent=1) + "\n"


def from_json(kind: type[T], plain: Any, key: str = "") -> T:
    """Build a record, or a part of one, of that type; ``key`` is where it stands, for messages."""
    return cast(T, _read(kind, plain, key, optional=False))


def read_file(kind: type[T], path: Path) -> T:
    """Read the file of a record; whatever is wrong with it is a ``ValueError``."""
    try:
        plain = json.loads(read_regular(path).decode("utf-8"))
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply: {error}") from error
    if not isinstance(plain, dict):
        raise FormatError(f"it holds a {type(plain).__name__} instead of an object")
    found = cast(dict[str, Any], plain)
    if found.get("format") != FORMAT:
        raise FormatError(f"format is {_shown(found.get('format'))}; this version reads format {FORMAT}")
    return from_json(kind, found)


def _read(hint: Any, plain: Any, key: str, *, optional: bool) -> Any:
    origin, members = get_origin(hint), get_args(hint)
    if hint is Any:
        return _copy(plain, key)
    if origin in (Union, UnionType):
        (member,) = (each for each in members if each is not NoneType)
        return None if plain is None else _read(member, plain, key, optional=True)
    if origin is Literal:
        if (word := _text(plain, key)) not in members:
            raise ValueError(f"{key} is {_shown(word)}; this version knows {', '.join(members)}")
        return word
    if origin is tuple:
        return _read_list(members[0], plain, key)
    if is_dataclass(hint):
        return _read_record(cast(type, hint), _object(plain, key, optional), key)
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(members[1], _object(plain, key, optional), key)
    if hint is float:
        return _number(plain, key, optional)
    if hint is int:
        if isinstance(plain, bool) or not isinstance(plain, int):
            raise ValueError(f"{key} is {_shown(plain)}; it must be a whole number")
        return plain
    assert hint is str, hint
    return _text(plain, key)


def _read_record(kind: type, plain: Mapping[str, Any], key: str) -> Any:
    values: dict[str, Any] = {}
    for name, (hint, has_default) in _fields_of(kind).items():
        value = plain.get(name)
        if value is not None or not has_default:
            values[name] = _read(hint, value, _join(key, name), optional=False)
    return kind(**values)


@cache
def _fields_of(kind: type) -> dict[str, tuple[Any, bool]]:
    hints = get_type_hints(kind)
    return {
        each.name: (hints[each.name], each.default is not MISSING or each.default_factory is not MISSING)
        for each in fields(kind)
    }


def _read_mapping(hint: Any, plain: Mapping[str, Any], key: str) -> dict[str, Any]:
    named = ((clean(name), value) for name, value in plain.items())
    return {name: _read(hint, value, _join(key, name), optional=False) for name, value in named}


def _read_list(hint: Any, plain: Any, key: str) -> tuple[Any, ...]:
    of_objects = is_dataclass(hint)
    items = cast(list[Any], plain) if isinstance(plain, list) else None
    if items is None or (of_objects and any(not isinstance(item, dict) for item in items)):
        raise ValueError(f"{key} must be a list of objects" if of_objects else f"{key} must be a list")
    return tuple(_read(hint, item, f"{key}.{place}", optional=False) for place, item in enumerate(items))


def _object(plain: Any, key: str, optional: bool) -> Mapping[str, Any]:
    if not isinstance(plain, Mapping):
        raise ValueError(f"{key} is {_shown(plain)}; it must be an object{' or null' if optional else ''}")
    return cast(Mapping[str, Any], plain)


def _text(plain: Any, key: str) -> str:
    if not isinstance(plain, str):
        raise ValueError(f"{key} is {_shown(plain)}; it must be a text")
    return clean(plain)


def _number(plain: Any, key: str, optional: bool) -> float | None:
    """Return a number; None if it need not be there and is not finite or absurd: then nobody can draw or average it."""
    if not isinstance(plain, bool) and isinstance(plain, (int, float)):
        number = _drawable(plain)
        if number is not None or optional:
            return number
    raise ValueError(f"{key} is {_shown(plain)}; it must be a number{' or null' if optional else ''}")


def _drawable(value: int | float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < _ABSURD else None


def _copy(plain: Any, key: str, depth: int = 0) -> Any:
    """Copy what a record holds of somebody else's, such as a spec; it may not be so deep that nobody can walk it."""
    if depth > _DEEPEST:
        raise ValueError(f"{key} is nested too deeply")
    if isinstance(plain, dict):
        return {clean(name): _copy(value, key, depth + 1) for name, value in cast(dict[str, Any], plain).items()}
    if isinstance(plain, list):
        return [_copy(value, key, depth + 1) for value in cast(list[Any], plain)]
    return clean(plain) if isinstance(plain, str) else plain


def _shown(value: Any) -> str:
    return repr(value)[:_LONGEST_SHOWN]


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
