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

from deepbilevel import Bilevel, CrossValidated
from deepbilevel.group_step import GroupStep
from deepbilevel.methods import AgreementFilter, AndMask, Average, GsnrWeighted, MedianOfThree
from tests.models import flat_grad

# What a group leaves to the next ones in these is their purpose.
REMEMBERING: dict[str, Callable[..., GroupStep]] = {
    "bilevel, momentum": partial(Bilevel, validation="momentum"),
    "bilevel, momentum exact": partial(Bilevel, validation="momentum", solver="exact"),
    "bilevel, momentum per layer": partial(Bilevel, validation="momentum", per_layer=True),
}
BILEVEL: dict[str, Callable[..., GroupStep]] = {
    "bilevel": Bilevel,
    "bilevel, no L1": partial(Bilevel, normalize=False),
    "bilevel, per layer": partial(Bilevel, per_layer=True),
    "bilevel, exact": partial(Bilevel, solver="exact"),
    "bilevel, exact per layer": partial(Bilevel, solver="exact", per_layer=True),
    "bilevel, absolute": partial(Bilevel, weighting="absolute"),
    "bilevel, clipped": partial(Bilevel, weighting="clipped"),
    "bilevel, clipped exact": partial(Bilevel, weighting="clipped", solver="exact"),
    "bilevel, random": partial(Bilevel, weighting="random"),
    "bilevel, cosine": partial(Bilevel, weighting="cosine"),
    "bilevel, k-fold": partial(Bilevel, validation="k-fold"),
    "bilevel, k-fold per layer": partial(Bilevel, validation="k-fold", per_layer=True),
    "bilevel, k-fold cosine": partial(Bilevel, validation="k-fold", weighting="cosine"),
    **REMEMBERING,
}


def _shrinking_updates(parameters: nn.Module, **settings: Any) -> CrossValidated:
    """Make a rule that leaves the mean in ``.grad``, and the rest to the optimizer's steps."""
    return CrossValidated(parameters, shrink="update", optimizer=torch.optim.Adam(parameters.parameters()), **settings)


STEPS: dict[str, Callable[..., GroupStep]] = {
    **BILEVEL,
    "cross-validated": CrossValidated,
    "cross-validated, per filter": partial(CrossValidated, block="filter"),
    "cross-validated, per layer": partial(CrossValidated, block="layer"),
    "cross-validated, whole model": partial(CrossValidated, block="model"),
    "cross-validated, shrinking updates": _shrinking_updates,
    "and-mask": AndMask,
    "and-mask, all": partial(AndMask, threshold=0.0),
    "median of three": MedianOfThree,
    "gsnr": GsnrWeighted,
    "agreement filter": AgreementFilter,
    "agreement filter, all": partial(AgreementFilter, max_cosine_distance=2.0),
    "average": Average,
    "average, first left out": partial(Average, leave_out=1),
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
