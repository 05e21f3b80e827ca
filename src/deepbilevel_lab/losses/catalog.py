"""Every loss by its kind: those that are functions, and those that remember or learn something."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from deepbilevel_lab.losses.auxiliary_images import AuxiliaryImages
from deepbilevel_lab.losses.co_teaching import CoTeaching
from deepbilevel_lab.losses.early_learning import EarlyLearning
from deepbilevel_lab.losses.noise_layer import NoiseLayer
from deepbilevel_lab.losses.pure import PureLossSpec
from deepbilevel_lab.losses.self_paced import SelfPaced
from deepbilevel_lab.losses.transition import BackwardCorrection, ForwardCorrection

LossSpec = (
    PureLossSpec
    | EarlyLearning
    | SelfPaced
    | ForwardCorrection
    | BackwardCorrection
    | NoiseLayer
    | CoTeaching
    | AuxiliaryImages
)

LOSSES: Mapping[str, type[LossSpec]] = MappingProxyType({member.kind: member for member in get_args(LossSpec)})
