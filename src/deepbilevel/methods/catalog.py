"""Every loss by its kind: those that are functions, and those that remember or learn something."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from deepbilevel.methods.auxiliary_images import AuxiliaryImages
from deepbilevel.methods.co_teaching import CoTeaching
from deepbilevel.methods.early_learning import EarlyLearning
from deepbilevel.methods.losses import PureLossSpec
from deepbilevel.methods.noise_layer import NoiseLayer
from deepbilevel.methods.self_paced import SelfPaced
from deepbilevel.methods.transition import BackwardCorrection, ForwardCorrection

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
