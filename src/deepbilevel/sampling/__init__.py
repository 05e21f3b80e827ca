"""Which images are compared with which: groups of mini-batches that carry the same labels."""

from deepbilevel.sampling.loader import MatchedLoader
from deepbilevel.sampling.matched import MatchedGroups

__all__ = ["MatchedGroups", "MatchedLoader"]
