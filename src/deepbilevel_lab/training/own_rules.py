"""Rules of the user: a spec may name one, and never imports it.

Specs and networks travel, and a stranger's must never run code. So a rule of one's own is found only if its module is
loaded: because the command names it (``--method package.module:ClassName``), or because the program imports it. Where
it is not, a stand-in keeps what the spec says: enough to use what was trained, and to train something else.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from deepbilevel.contract import Rule
from deepbilevel.rules.catalog import find_rule
from deepbilevel_lab.specs import SpecError


@dataclass(frozen=True)
class RuleNotLoaded(Rule[Any]):
    """A rule of the user whose code is not loaded. It can be written down, and trains nothing.

    Attributes:
        kind: where the rule is, ``package.module:ClassName``.
        settings: of the rule, as JSON.
    """

    kind: str  # pyright: ignore[reportIncompatibleVariableOverride]
    settings: str
    validates = True  # what it needs is unknown, so nothing is refused that a spec combines it with

    @classmethod
    def standing_for(cls, kind: str, settings: Mapping[str, Any]) -> "RuleNotLoaded":
        """Return what stands for a rule of that kind with those settings."""
        try:
            return cls(kind, json.dumps(settings, sort_keys=True, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise SpecError(
                f"the settings of {kind} cannot be: {error}; name finite numbers, texts and lists"
            ) from error

    def as_plain(self) -> dict[str, Any]:
        """Return what the spec says of it."""
        return {"kind": self.kind, **json.loads(self.settings)}

    def start(self, layout: Any, num_batches: int, memory: Any) -> NoReturn:
        """Refuse to train."""
        check_loaded(self)
        raise AssertionError("a rule that is not loaded is refused")


def name_rule(value: object) -> None:
    """Import the rule that the user of this process names, as ``--method`` or ``--set`` takes it, if it is their own.

    Never call it with what a file says.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return  # whoever reads the setting says what is wrong with it
    kind = cast(Mapping[str, Any], value).get("kind") if isinstance(value, Mapping) else value
    if isinstance(kind, str) and ":" in kind:
        try:
            find_rule(kind.strip('"'))
        except ValueError as error:
            raise SpecError(f"method: {error}") from error


def find_loaded_rule(kind: str) -> type[Rule[Any]] | None:
    """Return the rule of that kind, one's own only if its module is loaded; otherwise None."""
    if ":" not in kind:
        return find_rule(kind)
    module, _, name = kind.partition(":")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None  # getattr may import more
    is_it = isinstance(found, type) and issubclass(found, Rule) and getattr(found, "kind", None) == kind
    return cast("type[Rule[Any]]", found) if is_it else None


def check_loaded(method: Rule[Any]) -> None:
    """Refuse to train by a rule whose code nobody has named in this process."""
    if isinstance(method, RuleNotLoaded):
        raise SpecError(
            f"method {method.kind!r} is not part of deepbilevel, and is used only if you name it: add --method "
            f"{method.kind} (from Python: import {method.kind.partition(':')[0]} first), and only if you trust it"
        )
