"""Fields of a record, checked: a stranger's JSON becomes finite numbers and printable texts, or an error that names it.

This module does not know which fields a record has.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, cast

# What XML cannot hold, and halves of characters that UTF-8 cannot.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_ABSURD = 1e15


def clean(text: str) -> str:
    """Return a text that every file format can hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def text(record: Mapping[str, Any], key: str) -> str:
    """Return a text."""
    value = record.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}; it must be a text")
    return clean(value)


def optional_text(record: Mapping[str, Any], key: str) -> str | None:
    """Return a text, None if it is absent."""
    return None if record.get(key) is None else text(record, key)


def one_of(record: Mapping[str, Any], key: str, known: tuple[str, ...]) -> str:
    """Return one of the words this version knows."""
    value = text(record, key)
    if value not in known:
        raise ValueError(f"{key} is {value!r}; this version knows {', '.join(known)}")
    return value


def number(record: Mapping[str, Any], key: str) -> float | None:
    """Return a number; None if it is absent, not finite or absurd: none of these can be drawn or averaged."""
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key} is {value!r}; it must be a number or null")
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < _ABSURD else None


def whole(record: Mapping[str, Any], key: str) -> int:
    """Return a whole number."""
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{key} is {value!r}; it must be a whole number")
    return value


def optional_object(record: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """Return an object, None if it is absent."""
    value = record.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} is {value!r}; it must be an object or null")
    return cast("dict[str, Any] | None", value)


def objects(record: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return a list of objects."""
    value = record.get(key)
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [None]
    if any(not isinstance(item, dict) for item in items):
        raise ValueError(f"{key} must be a list of objects")
    return items
