"""Train neural networks on labels you cannot trust: Deep Bilevel Learning for PyTorch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deepbilevel.rule import bilevel_weights
from deepbilevel.rules.bilevel import Bilevel, BilevelReport
from deepbilevel.step import GroupStep

if TYPE_CHECKING:
    from deepbilevel.rules.cross_validated import CrossValidated
    from deepbilevel.sampling import MatchedGroups

__version__ = "0.2.0.dev0"

__all__ = ["Bilevel", "BilevelReport", "CrossValidated", "GroupStep", "MatchedGroups", "bilevel_weights"]

# The paper's rule is about ten modules. The sampler and our own rule are as many again, for those who ask for them.
_ON_DEMAND = {"CrossValidated": "deepbilevel.rules.cross_validated", "MatchedGroups": "deepbilevel.sampling"}


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'deepbilevel' has no attribute {name!r}; there are: {', '.join(__all__)}")
    return getattr(import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_ON_DEMAND]
