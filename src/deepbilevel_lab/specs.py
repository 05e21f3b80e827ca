"""Frozen dataclasses as plain JSON and back: a run is a value that can be written down, compared and hashed.

This module reads the types a spec declares: numbers, text, choices (``Literal``), tuples, mappings, other specs, and
unions of specs that are told apart by their ``kind``. It knows no spec. Every error names the key, the value and, where
a name was misspelt, the nearest valid one.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, partial, reduce
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from deepbilevel.checks import choose
from deepbilevel.contract import ADDED_LATER

T = TypeVar("T")

_ID_LENGTH = 10
MOST = 10**9
"""What no count of a spec exceeds."""
MOST_THREADS = 1024
"""More than the largest machines have cores; far more end a process, because the system gives no more."""
_SCALARS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


@dataclass(frozen=True)
class Kinds:
    """Annotation of a field whose members are found by their kind: ``Annotated[Base, Kinds(names, find, stand_in)]``.

    Unlike a union it is open: ``find`` may know kinds that are not among the names.

    Attributes:
        known: the kinds there are, for messages.
        find: returns the class of a kind, None if its code is not loaded, or raises ``ValueError``.
        stand_in: returns what stands for a kind that is not loaded, given its settings.
    """

    known: Mapping[str, type]
    find: Callable[[str], type | None]
    stand_in: Callable[[str, Mapping[str, Any]], Any]


class SpecError(ValueError):
    """A spec that cannot be: a wrong key, a wrong value, or values that do not go together."""


def check_not_above(name: str, value: int, most: int) -> None:
    """Refuse a count that nothing could hold or finish; its digits may be many, so they are not all shown."""
    if value > most:
        raise SpecError(
            f"{name} must be at most {most:,}, got a number of {value.bit_length()} bits; take a smaller one"
        )


def to_plain(spec: Any) -> Any:
    """Return a spec as dictionaries, lists and scalars; a member of a union carries its ``kind``.

    >>> from deepbilevel_lab.noise import NoiseSpec
    >>> to_plain(NoiseSpec("uniform", 0.5))
    {'kind': 'uniform', 'rate': 0.5}
    """
    return _to_plain(spec, leave_out_later=False)


def _to_plain(spec: Any, *, leave_out_later: bool) -> Any:
    again = partial(_to_plain, leave_out_later=leave_out_later)
    if hasattr(spec, "as_plain"):
        return spec.as_plain()
    if is_dataclass(spec) and not isinstance(spec, type):
        plain = {
            each.name: again(getattr(spec, each.name))
            for each in fields(spec)
            if not (
                leave_out_later
                and ADDED_LATER.items() <= each.metadata.items()
                and getattr(spec, each.name) == _default(each)
            )
        }
        kind = getattr(spec, "kind", None)
        return plain if kind is None else {"kind": kind, **plain}
    if isinstance(spec, Mapping):
        return {key: again(value) for key, value in cast(Mapping[str, Any], spec).items()}
    if isinstance(spec, (tuple, list)):
        return [again(value) for value in cast(list[Any], spec)]
    return spec


def _default(each: "Field[Any]") -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


def from_plain(kind: type[T], plain: Any, key: str = "") -> T:
    """Build a spec of that type from what :func:`to_plain` returned, or a person wrote; missing keys get defaults.

    Text stands for a whole spec where its class has a method ``parse``, and for a kind with all its defaults.
    """
    return cast(T, _read(kind, plain, key))


def validate(spec: Any) -> None:
    """Check and settle every field of a new spec against its declared type; call it first in ``__post_init__``."""
    for name, hint in _hints(type(spec)).items():
        object.__setattr__(spec, name, _read(hint, getattr(spec, name), name))


def canonical_json(spec: Any) -> str:
    """Return the one way of writing a spec: keys sorted, nothing superfluous."""
    plain = _to_plain(spec, leave_out_later=True)
    if hasattr(spec, "as_first_written"):
        plain = spec.as_first_written(plain)
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def spec_id(spec: Any) -> str:
    """Return a short name for exactly this spec: the start of the SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical_json(spec).encode()).hexdigest()[:_ID_LENGTH]


def with_value(spec: T, key: str, value: Any) -> T:
    """Return the spec with another value at a dotted key, such as ``optimizer.lr``; text is read as JSON if it is.

    >>> from deepbilevel_lab.noise import NoiseSpec
    >>> with_value(NoiseSpec("uniform", 0.5), "rate", "0.2")
    NoiseSpec(kind='uniform', rate=0.2)
    """
    plain = to_plain(spec)
    *path, last = key.split(".")
    inner, walked = plain, ""
    for name in path:
        walked = _join(walked, name)
        if not isinstance(inner, dict) or not isinstance(cast(dict[str, Any], inner).get(name), dict):
            known = cast(dict[str, Any], inner) if isinstance(inner, dict) else {}
            choose("key", walked, [_join(walked.rpartition(".")[0], each) for each in known])
            raise SpecError(
                f"{walked} is {known[name]!r} and has no key {key[len(walked) + 1 :]!r}; set {walked} itself"
            )
        inner = cast(dict[str, Any], inner)[name]
    given = _parse(value) if isinstance(value, str) else value
    old = inner.get(last)
    if isinstance(old, dict) and "kind" in old and given == old["kind"]:
        return spec  # naming the kind that is there keeps its settings
    if last == "kind" and path and not _has_field(spec, path, last):  # another kind has other settings
        return with_value(spec, ".".join(path), given)
    inner[last] = given
    return from_plain(type(spec), plain)


def _has_field(spec: Any, path: list[str], name: str) -> bool:
    owner = reduce(getattr, path, spec)
    return is_dataclass(owner) and name in _hints(type(owner))


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read(hint: Any, plain: Any, key: str) -> Any:
    origin = get_origin(hint)
    if origin is Annotated:
        base, kinds = get_args(hint)
        return _read_kind(base, kinds, plain, key)
    if origin in (Union, UnionType):
        return _read_union(get_args(hint), plain, key)
    if origin is Literal:
        if not isinstance(plain, str):
            raise SpecError(f"{key} must be one of {', '.join(get_args(hint))}, got {plain!r}")
        return choose(f"value of {key}", plain, get_args(hint))
    if origin is tuple:
        if not isinstance(plain, (list, tuple)):
            raise SpecError(f"{key} must be a list, got {plain!r}")
        return tuple(_read(get_args(hint)[0], each, f"{key}.{i}") for i, each in enumerate(cast(list[Any], plain)))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(plain, Mapping):
            raise SpecError(f"{key} must be a table of names and values, got {plain!r}")
        return _read_plain(plain, key)
    if is_dataclass(hint):
        return _read_spec(cast(type, hint), plain, key)
    return _read_scalar(hint, plain, key)


def _read_scalar(hint: Any, plain: Any, key: str) -> Any:
    if hint is Any:
        return plain
    if hint is float and isinstance(plain, (int, str)) and not isinstance(plain, bool):
        plain = _number(plain)  # 1 and 1.0 must have the same id; JSON has no 1e-3 without a dot in every dialect
    if type(plain) is not hint or (hint is float and not math.isfinite(plain)):
        raise SpecError(f"{key} must be {_SCALARS[hint]}, got {plain!r}")
    return plain + 0.0 if hint is float else plain  # so must 0.0 and -0.0


def _number(given: int | str) -> float | int | str:
    try:
        return float(given)
    except (ValueError, OverflowError):
        return given


def _read_plain(plain: Any, key: str) -> Any:
    """Copy what JSON and TOML both have a word for; nothing else would come back from a file."""
    if isinstance(plain, Mapping):
        table = cast(Mapping[Any, Any], plain)
        return {str(name): _read_plain(value, _join(key, name)) for name, value in table.items()}
    if isinstance(plain, (list, tuple)):
        return [_read_plain(value, f"{key}.{i}") for i, value in enumerate(cast(list[Any], plain))]
    if type(plain) in _SCALARS and (type(plain) is not float or math.isfinite(plain)):
        return plain
    raise SpecError(f"{key} must be a finite number, text, true, false or a list of these, got {plain!r}")


def _read_union(members: tuple[Any, ...], plain: Any, key: str) -> Any:
    if plain is None and NoneType in members:
        return None
    members = tuple(member for member in members if member is not NoneType)
    if len(members) == 1 and not _has_fixed_kind(members[0]):
        return _read(members[0], plain, key)
    if not all(is_dataclass(member) for member in members):
        fitting = [member for member in members if type(plain) is member]
        return _read(fitting[0] if fitting else members[-1], plain, key)
    by_kind = {member.kind: member for member in members}
    if any(type(plain) is member for member in members):
        return plain
    kind = plain.get("kind") if isinstance(plain, Mapping) else plain
    if not isinstance(kind, str):
        raise SpecError(f"{key} must be one of {', '.join(by_kind)} or a table with that kind, got {plain!r}")
    chosen = by_kind[choose(key, kind, by_kind)]
    rest = {name: value for name, value in plain.items() if name != "kind"} if isinstance(plain, Mapping) else {}
    return _read_spec(chosen, rest, key)


def _read_kind(base: type, kinds: Kinds, plain: Any, key: str) -> Any:
    """Read a member of an open family."""
    is_member = isinstance(plain, get_origin(base) or base)
    given = to_plain(plain) if is_member else plain  # read again, so that 1 becomes 1.0
    kind = given.get("kind") if isinstance(given, Mapping) else given
    if not isinstance(kind, str):
        raise SpecError(f"{key} must be one of {', '.join(kinds.known)} or a table with that kind, got {plain!r}")
    try:
        chosen = kinds.find(kind)
    except ValueError as error:
        raise SpecError(f"{key}: {error}") from error
    if chosen is None and is_member:
        return plain
    rest = {name: value for name, value in given.items() if name != "kind"} if isinstance(given, Mapping) else {}
    return kinds.stand_in(kind, rest) if chosen is None else _read_spec(chosen, rest, key)


def _has_fixed_kind(member: Any) -> bool:
    """Whether the class itself, and not a field, says which kind it is."""
    return is_dataclass(member) and isinstance(getattr(member, "kind", None), str)


def _read_spec(kind: type, plain: Any, key: str) -> Any:
    if type(plain) is kind:
        return plain
    if isinstance(plain, str) and hasattr(kind, "parse"):
        return cast(Any, kind).parse(plain)
    if not isinstance(plain, Mapping):
        raise SpecError(f"{key or kind.__name__} must be a table of settings, got {plain!r}")
    given = cast(Mapping[str, Any], plain)
    if hasattr(kind, "upgraded"):
        given = cast(Any, kind).upgraded(given)
    hints = _hints(kind)
    for name in given:
        choose("key", _join(key, name), [_join(key, each) for each in hints])
    required = [each.name for each in fields(kind) if each.default is each.default_factory]  # both are MISSING
    missing = [name for name in required if name not in given]
    if missing:
        raise SpecError(f"{_join(key, missing[0])} is missing; it has no default")
    values = {name: _read(hints[name], value, _join(key, name)) for name, value in given.items()}
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise SpecError(f"{key}: {error}" if key else str(error)) from error


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {each.name: hints[each.name] for each in fields(kind)}


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
