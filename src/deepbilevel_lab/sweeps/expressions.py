"""Methods as people write them: ``sgd,bilevel+mixup,bilevel[method.mu=0.1; group.draw=stratified],controls``.

A plus applies several names, brackets tune the name before them, and a group's name stands for all its members. This
module knows the grammar and what names set; whether a run can be like that, the spec decides.
"""

import json
from collections.abc import Iterator
from typing import Any

from deepbilevel.checks import choose
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.sweeps.named_methods import EVERYTHING, GROUPS, METHODS, names_of

_OPENING, _CLOSING = "[{(", "]})"


def read_methods(text: str) -> dict[str, dict[str, Any]]:
    """Return the settings of every method that is named, in the order of the text, each once.

    >>> read_methods("sgd, bilevel+mixup[mixing.alpha=0.4]")["bilevel+mixup[mixing.alpha=0.4]"]
    {'method': 'bilevel', 'mixing': 'mixup', 'mixing.alpha': 0.4}
    """
    methods: dict[str, dict[str, Any]] = {}
    for expression in _split(text, ","):
        for name in names_of(expression) if expression in (*GROUPS, EVERYTHING) else [expression]:
            methods.setdefault("".join(name.split()), _read(name))
    return methods


def _read(expression: str) -> dict[str, Any]:
    """Return what the names of one expression set; ``method`` comes first, since another one has other settings."""
    merged: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for part in _split(expression, "+"):
        name, tuning = _read_part(part, expression)
        for key, value in {**METHODS[name].settings, **tuning}.items():
            if merged.setdefault(key, value) != value:
                raise SpecError(
                    f"method {expression!r}: {owners[key]} and {name} do not go together, {key} cannot be both "
                    f"{merged[key]!r} and {value!r}; name them apart"
                )
            owners.setdefault(key, name)
    return {"method": merged.pop("method", "sgd"), **merged}


def _read_part(part: str, expression: str) -> tuple[str, dict[str, Any]]:
    name, opened, rest = part.partition("[")
    name = name.strip()
    try:
        choose("method", name, METHODS)
    except ValueError as error:
        also = f"; and groups of them: {', '.join((*GROUPS, EVERYTHING))}" if name == expression.strip() else ""
        raise SpecError(f"{error}{also}") from None
    tuning: dict[str, Any] = {}
    if opened and not rest.rstrip().endswith("]"):
        raise SpecError(f"method {expression!r}: after the closing bracket nothing but + may follow")
    for setting in _split(rest.rstrip()[:-1], ";") if opened else []:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"method {expression!r}: brackets hold key=value; key=value, got {setting!r}")
        tuning[key.strip()] = _value(value.strip())
    return name, tuning


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _split(text: str, separator: str) -> Iterator[str]:
    """Split where no bracket is open, and refuse what is empty."""
    depth, start = 0, 0
    for position, letter in enumerate(text + separator):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        at_end = position == len(text)
        if depth < 0 or (at_end and depth):
            raise SpecError(f"the brackets of {text!r} do not match; write as in bilevel[method.mu=0.1]")
        if letter == separator and depth == 0:
            part = text[start:position].strip()
            if not part:
                raise SpecError(f"there is nothing between two {separator!r}, or at an end, of {text!r}; name a method")
            yield part
            start = position + 1
