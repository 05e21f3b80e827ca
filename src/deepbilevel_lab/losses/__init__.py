"""What a mini-batch's loss is, and how its images and labels are mixed before.

A loss (``pure.py``) and a mixing (``mixing.py``) are specs that are also functions; a loss that remembers or learns
something is a spec that makes a module (``objective.py``, and a file per family).
"""

from deepbilevel_lab.losses.auxiliary_images import AuxiliaryImages
from deepbilevel_lab.losses.catalog import LOSSES, LossSpec
from deepbilevel_lab.losses.co_teaching import CoTeaching
from deepbilevel_lab.losses.early_learning import EarlyLearning
from deepbilevel_lab.losses.mixing import Mixup
from deepbilevel_lab.losses.noise_layer import NoiseLayer
from deepbilevel_lab.losses.objective import Objective, ObjectiveSpec, Task
from deepbilevel_lab.losses.pure import (
    CrossEntropy,
    GeneralizedCrossEntropy,
    HardBootstrap,
    LabelSmoothing,
    SoftBootstrap,
)
from deepbilevel_lab.losses.self_paced import SelfPaced
from deepbilevel_lab.losses.transition import BackwardCorrection, ForwardCorrection

__all__ = [
    "LOSSES",
    "AuxiliaryImages",
    "BackwardCorrection",
    "CoTeaching",
    "CrossEntropy",
    "EarlyLearning",
    "ForwardCorrection",
    "GeneralizedCrossEntropy",
    "HardBootstrap",
    "LabelSmoothing",
    "LossSpec",
    "Mixup",
    "NoiseLayer",
    "Objective",
    "ObjectiveSpec",
    "SelfPaced",
    "SoftBootstrap",
    "Task",
]
