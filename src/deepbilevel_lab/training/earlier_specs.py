"""How version 0.1 wrote a run down, so that its records are read and its ids hold.

It had one method ``bilevel`` whose solver and validation were settings, where now ``exact``, ``k-fold`` and
``momentum`` are rules of their own, and ``shared_dropout`` was one of them, where now it belongs to the run.
"""

from collections.abc import Mapping
from typing import Any, cast

from deepbilevel_lab.specs import SpecError

_SETTINGS = ("mu", "lam", "normalize", "per_layer", "weighting")
_CHOICES_OF = {
    "bilevel": ("diagonal", "first"),
    "exact": ("exact", "first"),
    "k-fold": ("diagonal", "k-fold"),
    "momentum": ("diagonal", "momentum"),
}


def upgraded(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run of version 0.1 in today's form; any other is returned as it is. What is gone is refused."""
    given = plain.get("method")
    plain = {**plain, "shared_dropout": plain.get("shared_dropout", False)}
    if not isinstance(given, Mapping):
        return plain
    method = dict(cast(Mapping[str, Any], given))
    retired = {"solver", "validation", "validation_momentum", "shared_dropout"} & method.keys()
    if method.get("kind") != "bilevel" or not retired:
        return plain
    solver, validation, momentum, shared = (
        method.pop(name, default)
        for name, default in (
            ("solver", "diagonal"),
            ("validation", "first"),
            ("validation_momentum", 0.9),
            ("shared_dropout", plain["shared_dropout"]),
        )
    )
    kinds = [kind for kind, choices in _CHOICES_OF.items() if choices == (solver, validation)]
    if not kinds:
        raise SpecError(
            f"method: solver {solver!r} with validation {validation!r} is not a kind of method; those of version 0.1 "
            f"that are still there are now {', '.join(_CHOICES_OF)}"
        )
    method["kind"] = kinds[0]
    if method["kind"] == "momentum":
        method["momentum"] = momentum
    if method["kind"] == "exact" and method.get("weighting") == "agreement":
        del method["weighting"]
    return {**plain, "method": method, "shared_dropout": shared}


def upgraded_to_compare(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the same for people to look at, beside runs of today; what is gone stays as it was written."""
    try:
        return upgraded(plain)
    except SpecError:
        return plain


def as_first_written(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a run as version 0.1 would have written it, where it could."""
    method = plain["method"]
    kind = method["kind"]
    if kind not in _CHOICES_OF:
        return plain
    solver, validation = _CHOICES_OF[kind]
    old = {
        "weighting": "agreement",
        **{name: value for name, value in method.items() if name in _SETTINGS},
        "kind": "bilevel",
        "solver": solver,
        "validation": validation,
        "validation_momentum": method.get("momentum", 0.9),
        "shared_dropout": plain.get("shared_dropout", False),
    }
    return {**{name: value for name, value in plain.items() if name != "shared_dropout"}, "method": old}
