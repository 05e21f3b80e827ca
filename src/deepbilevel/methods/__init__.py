"""Ways to train, as three independent choices, so that no combination needs a class of its own.

How images and labels are mixed (``mixing.py``) and what the loss is (``losses.py``) are specs that are also functions;
a loss that remembers or learns something is a spec that makes a module (``objective.py``, and a file per family).
What a group of mini-batches becomes is a spec (``spec.py``) and a step with the loop contract of ``group_step.py``.
"""

from deepbilevel.methods.agreement_filter import AgreementFilter
from deepbilevel.methods.and_mask import AndMask
from deepbilevel.methods.auxiliary_images import AuxiliaryImages
from deepbilevel.methods.average import Average
from deepbilevel.methods.catalog import LOSSES, LossSpec
from deepbilevel.methods.co_teaching import CoTeaching
from deepbilevel.methods.early_learning import EarlyLearning
from deepbilevel.methods.gsnr import GsnrWeighted
from deepbilevel.methods.losses import (
    PURE_LOSSES,
    CrossEntropy,
    GeneralizedCrossEntropy,
    HardBootstrap,
    LabelSmoothing,
    SoftBootstrap,
)
from deepbilevel.methods.median_of_three import MedianOfThree
from deepbilevel.methods.mixing import Mixup
from deepbilevel.methods.noise_layer import NoiseLayer
from deepbilevel.methods.objective import Objective, ObjectiveSpec, Task
from deepbilevel.methods.self_paced import SelfPaced
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
from deepbilevel.methods.transition import BackwardCorrection, ForwardCorrection

__all__ = [
    "LOSSES",
    "METHODS",
    "PURE_LOSSES",
    "AgreementFilter",
    "AgreementFilterSpec",
    "AndMask",
    "AndMaskSpec",
    "AuxiliaryImages",
    "Average",
    "BackwardCorrection",
    "BilevelSpec",
    "CoTeaching",
    "CrossEntropy",
    "CrossValidatedSpec",
    "EarlyLearning",
    "ForwardCorrection",
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
    "NoiseLayer",
    "Objective",
    "ObjectiveSpec",
    "SelfPaced",
    "SgdSpec",
    "SoftBootstrap",
    "Task",
    "UniformSpec",
]
