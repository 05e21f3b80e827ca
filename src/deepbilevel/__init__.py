"""Train neural networks on labels you cannot trust: Deep Bilevel Learning for PyTorch."""

from deepbilevel.rule import bilevel_weights
from deepbilevel.rules.bilevel import Bilevel, BilevelReport
from deepbilevel.rules.cross_validated import CrossValidated
from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep

__version__ = "0.2.0.dev0"

__all__ = ["Bilevel", "BilevelReport", "CrossValidated", "GroupStep", "MatchedGroups", "bilevel_weights"]
