"""All experiments of the paper by name, in its order."""

from collections.abc import Mapping
from types import MappingProxyType

from deepbilevel.checks import choose
from deepbilevel_paper.ablations import ABLATIONS
from deepbilevel_paper.comparison import COMPARISON
from deepbilevel_paper.experiment import Experiment
from deepbilevel_paper.large_data import LARGE_DATA
from deepbilevel_paper.memorization import MEMORIZATION

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {each.name: each for each in (*ABLATIONS, *MEMORIZATION, *COMPARISON, *LARGE_DATA)}
)


def find_experiment(name: str) -> Experiment:
    """Return the experiment of that name; an unknown one gets the nearest.

    >>> find_experiment("table1").where
    'section 4.1, table 1'
    """
    return EXPERIMENTS[choose("experiment", name, EXPERIMENTS)]
