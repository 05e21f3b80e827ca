"""Every loss by its kind: those that are functions, and those that remember or learn something."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from deepbilevel.methods.early_learning import EarlyLearning
from deepbilevel.methods.losses import PureLossSpec

LossSpec = PureLossSpec | EarlyLearning

LOSSES: Mapping[str, type[LossSpec]] = MappingProxyType({member.kind: member for member in get_args(LossSpec)})
