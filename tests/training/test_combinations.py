"""Every way to combine the choices of a method trains, or is refused with a reason."""

import itertools
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from deepbilevel.rules.catalog import RULES
from deepbilevel_lab.losses import LOSSES, ObjectiveSpec
from deepbilevel_lab.specs import SpecError, with_value
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.loop import TrainingLoop
from tests.losses.tasks import PURE_LOSSES

MIXINGS = [None, "mixup"]
CONTROLS = [f'{{"kind": "bilevel", "weighting": "{name}"}}' for name in ("absolute", "clipped", "random", "cosine")]
# With Adam the length of a step does not depend on how a rule or a loss scales gradients: all learn in the same time,
# and none so fast that it could fall back. Every one ended beyond 80 % with them, from both seeds tried.
QUICK = {"optimizer": "Adam", "optimizer__lr": 0.003, "group__batch_size": 8}
# They learn only what mini-batches agree on: for some seeds nothing of a step, or nothing of a small layer.
CAREFUL = ("and-mask", "agreement-filter", "cross-validated")
UPDATES = [*RULES, *CONTROLS]
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
    applied = []
    for _ in islice(loop.run(), 2):
        assert bool(torch.isfinite(loop.report.losses).all())
        applied.append(loop.report.applied)
    after = list(loop.parts.model.parameters())
    assert all(bool(torch.isfinite(parameter).all()) for parameter in after)
    moved = [not torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    # Of the careful ones, two steps and eight tensors leave enough that a step which reaches no parameter shows.
    enough = any if method in CAREFUL else all
    assert enough(applied)
    assert enough(moved)


@pytest.mark.parametrize(
    ("method", "loss", "mixing"),
    [
        *((method, "cross-entropy", None) for method in UPDATES),
        *(("sgd", loss, None) for loss in PURE_LOSSES),  # those that remember: test_objectives.py
        *(("sgd", "cross-entropy", "mixup"), ("bilevel", "cross-entropy", "mixup")),
    ],
)
def test_everything_learns_on_clean_digits(method, loss, mixing):
    loop = started(digits(method=method, loss=loss, mixing=mixing, epochs=4, evaluate_every=4, **QUICK))
    said = pytest.warns(UserWarning, match="Adam divides by the size of the gradients")
    with said if method == "cross-validated" else nullcontext():
        for _ in loop.run():
            pass
    # Guessing is right for 10 % of the 450 test images, give or take 1.4: this is twenty times that beyond. A gradient
    # of the wrong sign, no step at all or weights that cancel out stay with the guesses.
    assert loop.history[-1].test > 40
