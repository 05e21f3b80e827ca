"""Ways to train, as three independent choices, so that no combination needs a class of its own.

How images and labels are mixed (``mixing.py``) and what the loss is (``losses.py``) are specs that are also functions;
what a group of mini-batches becomes is a spec (``spec.py``) and a step with the loop contract of ``group_step.py``.
"""

from deepbilevel.methods.agreement_filter import AgreementFilter
from deepbilevel.methods.and_mask import AndMask
from deepbilevel.methods.average import Average
from deepbilevel.methods.gsnr import GsnrWeighted
from deepbilevel.methods.losses import (
    LOSSES,
    CrossEntropy,
    GeneralizedCrossEntropy,
    HardBootstrap,
    LabelSmoothing,
    LossSpec,
    SoftBootstrap,
)
from deepbilevel.methods.median_of_three import MedianOfThree
from deepbilevel.methods.mixing import Mixup
from deepbilevel.methods.spec import (
    METHODS,
    AgreementFilterSpec,
    AndMaskSpec,
    BilevelSpec,
    CrossValidatedSpec,
    GsnrSpec,
    MedianOfThreeSpec,
    MethodSpec,
    SgdSpec,
    UniformSpec,
)

__all__ = [
    "LOSSES",
    "METHODS",
    "AgreementFilter",
    "AgreementFilterSpec",
    "AndMask",
    "AndMaskSpec",
    "Average",
    "BilevelSpec",
    "CrossEntropy",
    "CrossValidatedSpec",
    "GeneralizedCrossEntropy",
    "GsnrSpec",
    "GsnrWeighted",
    "HardBootstrap",
    "LabelSmoothing",
    "LossSpec",
    "MedianOfThree",
    "MedianOfThreeSpec",
    "MethodSpec",
    "Mixup",
    "SgdSpec",
    "SoftBootstrap",
    "UniformSpec",
]
