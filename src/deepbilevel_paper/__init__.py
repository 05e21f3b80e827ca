"""Every table and figure of Jenni & Favaro, "Deep Bilevel Learning" (ECCV 2018), as data, beside what it prints.

This package knows experiments; how a run is trained is ``deepbilevel``'s business.
"""

from deepbilevel_paper.catalog import EXPERIMENTS, find_experiment
from deepbilevel_paper.experiment import Cell, Experiment, runs_of
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
