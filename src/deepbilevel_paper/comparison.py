"""The comparison of section 4.3: ways to deal with 40 % wrong labels, all with PreAct ResNet-18.

A row of the paper's table gets runs by an entry in ``_ROWS``; a row without one shows the paper's figures alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from deepbilevel_lab.losses import AuxiliaryImages, LabelSmoothing, Mixup, NoiseLayer, SelfPaced, SoftBootstrap
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_paper.experiment import Cell, Experiment
from deepbilevel_paper.published import COMPARISON_40
from deepbilevel_paper.recipes import BILEVEL, GROUP_OF_128, SGD, recipe, with_noise

_NETWORK = "preact_resnet18"
_DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100"}
_NOISE_RATE = 0.4

# Row -> what differs from plain SGD; the order is the paper's.
_ROWS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Reed et al.": {"loss": SoftBootstrap()},
        "Goldberger et al.": {"loss": NoiseLayer()},
        "Azadi et al.": {"loss": AuxiliaryImages()},
        "Jiang et al. (MentorNet)": {"loss": SelfPaced()},
        "Zhang et al. (mixup)": {"mixing": Mixup()},
        "SGD": {},
        "Dropout, keep 0.3": {"network": NetworkSpec(_NETWORK, dropout=0.7)},
        "Label smoothing 0.1": {"loss": LabelSmoothing(0.1)},
        "Bilevel": {"method": BILEVEL},
        "Bilevel + mixup": {"method": BILEVEL, "mixing": Mixup()},
    }
)


def _plan() -> list[Cell]:
    return [
        Cell(row, shown, with_noise(replace(spec, **settings), _NOISE_RATE))
        for row, settings in _ROWS.items()
        for data, shown in _DATA.items()
        for spec in [replace(recipe(data, _NETWORK), method=SGD, group=GROUP_OF_128, epochs=200)]
    ]


COMPARISON = (
    Experiment(
        "comparison-40",
        "40 % wrong labels, against other methods",
        where="section 4.3, table 3",
        varies="the method",
        plan=_plan,
        published=COMPARISON_40,
        assumes=(
            "optimizer, schedule, weight decay and epochs are those of mixup's published code, groups 8 x 16",
            "every row is trained with PreAct ResNet-18; in the paper the first four are others' results and networks",
            "Goldberger et al. is their simple layer, Jiang et al. their predefined curriculum; Azadi et al. had clean "
            "images beside the noisy ones, here the mini-batch's own take their place",
            "Reed et al. is their soft bootstrapping, with 0.95 of the given label",
            "mixup has alpha 1",
            "dropout stands before the last layer; 'p = 0.3' is what is kept",
        ),
    ),
)
