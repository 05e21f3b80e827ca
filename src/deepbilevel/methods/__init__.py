"""Ways to train, as three independent choices, so that no combination needs a class of its own.

How images and labels are mixed (``mixing.py``) and what the loss is (``losses.py``) are specs that are also functions;
a loss that remembers or learns something is a spec that makes a module (``objective.py``, and a file per family).
What a group of mini-batches becomes is a spec (``spec.py``) and a step with the loop contract of ``group_step.py``.
"""

from deepbilevel.methods.average import Average
from deepbilevel.methods.catalog import LOSSES, LossSpec
from deepbilevel.methods.early_learning import EarlyLearning
from deepbilevel.methods.losses import (
    PURE_LOSSES,
    CrossEntropy,
    GeneralizedCrossEntropy,
    HardBootstrap,
    LabelSmoothing,
    SoftBootstrap,
)
from deepbilevel.methods.mixing import Mixup
from deepbilevel.methods.objective import Objective, ObjectiveSpec, Task
from deepbilevel.methods.spec import METHODS, BilevelSpec, CrossValidatedSpec, MethodSpec, SgdSpec, UniformSpec

__all__ = [
    "LOSSES",
    "METHODS",
    "PURE_LOSSES",
    "Average",
    "BilevelSpec",
    "CrossEntropy",
    "CrossValidatedSpec",
    "EarlyLearning",
    "GeneralizedCrossEntropy",
    "HardBootstrap",
    "LabelSmoothing",
    "LossSpec",
    "MethodSpec",
    "Mixup",
    "Objective",
    "ObjectiveSpec",
    "SgdSpec",
    "SoftBootstrap",
    "Task",
    "UniformSpec",
]
