"""The loop contract as a battery: every step that collects k gradients and fills ``.grad`` must pass it.

A new rule passes by adding one line to ``STEPS``.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel import Bilevel, CrossValidated, GroupStep
from deepbilevel.contract import Rule
from deepbilevel.rules.agreement_filter import AgreementFilter
from deepbilevel.rules.and_mask import AndMask
from deepbilevel.rules.average import Uniform
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.gsnr import Gsnr
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel.rules.median_of_three import MedianOfThree
from deepbilevel.rules.momentum import MomentumBilevel
from tests.models import flat_grad


def by(rule: Rule[Any]) -> Callable[..., GroupStep[Any]]:
    """Return what makes a step by that rule."""
    return partial(GroupStep, rule=rule)


# What a group leaves to the next ones in these is their purpose.
REMEMBERING: dict[str, Callable[..., GroupStep]] = {
    "bilevel, momentum": by(MomentumBilevel()),
    "bilevel, momentum per layer": by(MomentumBilevel(per_layer=True)),
    "cross-validated, momentum": partial(CrossValidated, strength=0.25, momentum=0.9),
    "cross-validated, momentum per filter": partial(CrossValidated, block="filter", momentum=0.9),
    "cross-validated, momentum per layer": partial(CrossValidated, block="layer", momentum=0.9),
}
BILEVEL: dict[str, Callable[..., GroupStep]] = {
    "bilevel": Bilevel,
    "bilevel, no L1": partial(Bilevel, normalize=False),
    "bilevel, per layer": partial(Bilevel, per_layer=True),
    "bilevel, exact": by(ExactBilevel()),
    "bilevel, exact per layer": by(ExactBilevel(per_layer=True)),
    "bilevel, absolute": partial(Bilevel, weighting="absolute"),
    "bilevel, clipped": partial(Bilevel, weighting="clipped"),
    "bilevel, random": partial(Bilevel, weighting="random"),
    "bilevel, cosine": partial(Bilevel, weighting="cosine"),
    "bilevel, k-fold": by(KFoldBilevel()),
    "bilevel, k-fold per layer": by(KFoldBilevel(per_layer=True)),
    "bilevel, k-fold cosine": by(KFoldBilevel(weighting="cosine")),
    **{name: make for name, make in REMEMBERING.items() if name.startswith("bilevel")},
}


def _shrinking_updates(parameters: nn.Module, **settings: Any) -> CrossValidated:
    """Make a rule that leaves the mean in ``.grad``, and the rest to the optimizer's steps."""
    return CrossValidated(parameters, shrink="update", optimizer=torch.optim.Adam(parameters.parameters()), **settings)


STEPS: dict[str, Callable[..., GroupStep]] = {
    **BILEVEL,
    **REMEMBERING,
    "cross-validated": CrossValidated,
    "cross-validated, per filter": partial(CrossValidated, block="filter"),
    "cross-validated, per layer": partial(CrossValidated, block="layer"),
    "cross-validated, whole model": partial(CrossValidated, block="model"),
    "cross-validated, weak": partial(CrossValidated, strength=0.25),
    "cross-validated, shrinking updates": _shrinking_updates,
    "and-mask": by(AndMask()),
    "and-mask, all": by(AndMask(threshold=0.0)),
    "median of three": by(MedianOfThree()),
    "gsnr": by(Gsnr()),
    "agreement filter": by(AgreementFilter()),
    "agreement filter, all": by(AgreementFilter(max_cosine_distance=2.0)),
    "average": by(Uniform(use_validation=True)),
    "average, first left out": by(Uniform()),
}

K = 4
_FORGETTING = {name: make for name, make in STEPS.items() if name not in REMEMBERING}
every_step = pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
every_forgetting_step = pytest.mark.parametrize("make", _FORGETTING.values(), ids=_FORGETTING)
every_bilevel = pytest.mark.parametrize("make", BILEVEL.values(), ids=BILEVEL)


def collect(model, step, batches, forward=None):
    torch.manual_seed(0)
    for x, y in batches:
        step.backward(F.cross_entropy(model(x) if forward is None else forward(x), y))


def filled(model, make, batches, forward=None, **arguments):
    """Run one group and return the gradient it left, flat."""
    step = make(model, num_batches=len(batches), **arguments)
    collect(model, step, batches, forward)
    step.fill()
    return flat_grad(model)
