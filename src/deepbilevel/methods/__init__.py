"""Ways to train, as independent choices: what the loss is, and what a group of mini-batches becomes.

The first is a spec that is a function (``losses.py``); the second a spec (``spec.py``) and a step with the loop
contract of ``group_step.py``. Any of the one goes with any of the other.
"""

from deepbilevel.methods.average import Average
from deepbilevel.methods.losses import (
    LOSSES,
    CrossEntropy,
    GeneralizedCrossEntropy,
    HardBootstrap,
    LabelSmoothing,
    LossSpec,
    SoftBootstrap,
)
from deepbilevel.methods.spec import METHODS, BilevelSpec, CrossValidatedSpec, MethodSpec, SgdSpec, UniformSpec

__all__ = [
    "LOSSES",
    "METHODS",
    "Average",
    "BilevelSpec",
    "CrossEntropy",
    "CrossValidatedSpec",
    "GeneralizedCrossEntropy",
    "HardBootstrap",
    "LabelSmoothing",
    "LossSpec",
    "MethodSpec",
    "SgdSpec",
    "SoftBootstrap",
    "UniformSpec",
]
