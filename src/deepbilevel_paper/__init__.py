"""Every table and figure of Jenni & Favaro, "Deep Bilevel Learning" (ECCV 2018), as data, beside what it prints.

This package knows experiments; how a run is trained is ``deepbilevel``'s business.
"""

from collections.abc import Mapping
from types import MappingProxyType

from deepbilevel.checks import choose
from deepbilevel_paper.ablations import ABLATIONS
from deepbilevel_paper.comparison import COMPARISON
from deepbilevel_paper.experiment import Cell, Experiment, runs_of
from deepbilevel_paper.large_data import LARGE_DATA
from deepbilevel_paper.memorization import MEMORIZATION
from deepbilevel_paper.published import Published
from deepbilevel_paper.scale import SCALES, Scale, find_scale

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Cell",
    "Experiment",
    "Published",
    "Scale",
    "find_experiment",
    "find_scale",
    "runs_of",
]

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {each.name: each for each in (*ABLATIONS, *MEMORIZATION, *COMPARISON, *LARGE_DATA)}
)


def find_experiment(name: str) -> Experiment:
    """Return the experiment of that name; an unknown one gets the nearest.

    >>> find_experiment("table1").where
    'section 4.1, table 1'
    """
    return EXPERIMENTS[choose("experiment", name, EXPERIMENTS)]
