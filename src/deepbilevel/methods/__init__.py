"""Ways to train: what a group of mini-batches becomes before the optimizer sees it.

A method is a spec (``spec.py``) and a step with the loop contract of ``group_step.py``.
"""

from deepbilevel.methods.average import Average
from deepbilevel.methods.spec import METHODS, BilevelSpec, CrossValidatedSpec, MethodSpec, SgdSpec, UniformSpec

__all__ = [
    "METHODS",
    "Average",
    "BilevelSpec",
    "CrossValidatedSpec",
    "MethodSpec",
    "SgdSpec",
    "UniformSpec",
]
