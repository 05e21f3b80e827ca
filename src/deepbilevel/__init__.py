"""Train neural networks on labels you cannot trust: Deep Bilevel Learning for PyTorch.

Importing this package is cheap: torch is loaded when the first of these names is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepbilevel.cross_validated import CrossValidated as CrossValidated
    from deepbilevel.cross_validated import CrossValidatedReport as CrossValidatedReport
    from deepbilevel.rule import bilevel_weights as bilevel_weights
    from deepbilevel.sampling import MatchedGroups as MatchedGroups
    from deepbilevel.step import Bilevel as Bilevel
    from deepbilevel.step import StepReport as StepReport

__version__ = "0.1.0"

_HOME = {
    "Bilevel": "deepbilevel.step",
    "CrossValidated": "deepbilevel.cross_validated",
    "CrossValidatedReport": "deepbilevel.cross_validated",
    "MatchedGroups": "deepbilevel.sampling",
    "StepReport": "deepbilevel.step",
    "bilevel_weights": "deepbilevel.rule",
}

__all__ = ["Bilevel", "CrossValidated", "CrossValidatedReport", "MatchedGroups", "StepReport", "bilevel_weights"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
