"""Every way to combine the choices of a method trains, or is refused with a reason."""

import itertools
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from deepbilevel.methods import LOSSES, METHODS, PURE_LOSSES, ObjectiveSpec
from deepbilevel.specs import SpecError, with_value
from deepbilevel.training.build import build
from deepbilevel.training.defaults import default_spec
from deepbilevel.training.loop import TrainingLoop

MIXINGS = [None, "mixup"]
CONTROLS = [f'{{"kind": "bilevel", "weighting": "{name}"}}' for name in ("absolute", "clipped", "random", "cosine")]
VALIDATIONS = [
    '{"kind": "bilevel", "validation": "k-fold"}',
    '{"kind": "bilevel", "validation": "momentum", "validation_momentum": 0.5}',
]
# Their steps rest on few of the images, or on a validation gradient of the past, and shake more.
SHAKY = ("random", "agreement-filter", "momentum")
UPDATES = [*METHODS, *CONTROLS, *VALIDATIONS]
COMBINATIONS = [
    # Every method, and every loss with and without one; the rest of the square finds little more.
    (method, loss, mixing)
    if loss == "cross-entropy" or (method in ("sgd", "bilevel") and mixing is None)
    else pytest.param(method, loss, mixing, marks=pytest.mark.slow)
    for method, loss, mixing in itertools.product(UPDATES, LOSSES, MIXINGS)
]


def digits(**settings):
    spec = replace(default_spec("digits"), device="cpu", threads=1)
    for key, value in settings.items():
        spec = with_value(spec, key.replace("__", "."), value)
    return spec


def started(spec):
    return TrainingLoop(build(spec, Path("no-files-are-needed")))


def refusal(method, loss, mixing):
    """Return why a combination makes no sense, if it makes none."""
    spec = LOSSES[loss]
    if not issubclass(spec, ObjectiveSpec):
        return None
    return (method != "sgd" and spec.only_with_sgd) or (mixing and spec.not_with_mixing) or None


@pytest.mark.parametrize(("method", "loss", "mixing"), COMBINATIONS)
def test_every_combination_trains_two_steps(method, loss, mixing):
    reason = refusal(method, loss, mixing)
    if reason is not None:
        with pytest.raises(SpecError, match=reason):
            digits(method=method, loss=loss, mixing=mixing)
        return
    loop = started(digits(method=method, loss=loss, mixing=mixing, data__limit=256))
    before = [parameter.detach().clone() for parameter in loop.parts.model.parameters()]
    for _ in islice(loop.run(), 2):
        assert bool(torch.isfinite(loop.report.losses).all())
        assert loop.report.applied
    after = list(loop.parts.model.parameters())
    assert all(bool(torch.isfinite(parameter).all()) for parameter in after)
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("method", "loss", "mixing"),
    [
        *((method, "cross-entropy", None) for method in UPDATES),
        *(("sgd", loss, None) for loss in PURE_LOSSES),  # those that remember: test_objectives.py
        *(("sgd", "cross-entropy", "mixup"), ("bilevel", "cross-entropy", "mixup")),
    ],
)
def test_everything_learns_on_clean_digits(method, loss, mixing):
    lr = 0.03 if any(name in method for name in SHAKY) else 0.1
    settings = {"epochs": 8, "evaluate_every": 8, "group__batch_size": 8, "optimizer__lr": lr}
    loop = started(digits(method=method, loss=loss, mixing=mixing, **settings))
    for _ in loop.run():
        pass
    assert loop.history[-1]["test"] > 80
