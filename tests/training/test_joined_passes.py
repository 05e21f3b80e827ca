"""Runs whose mini-batches share passes: the same steps as one by one, bit for bit when resumed, refused where not."""

from itertools import islice

import pytest
import torch

from deepbilevel.rules.catalog import RULES
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training.spec import RunSpec
from tests.losses.tasks import PURE_LOSSES
from tests.training.test_combinations import CONTROLS, MIXINGS, digits, started
from tests.training.test_cross_validated_runs import assert_resumed_is_unbroken
from tests.training.test_packing import same

BOTH = ("single", "joined")
# Without dropout, which is drawn for other images in another order, and in double precision, which hides the order
# of sums. Random weights are the same numbers: nothing else is drawn in between.
CERTAIN = {"network__dropout": 0.0, "data__limit": 256, "noise": "uniform:0.5"}


def after_two_steps(**settings):
    loop = started(digits(**CERTAIN, **settings))
    loop.parts.model.double()
    loop.parts.train._recipe = Doubled(loop.parts.train._recipe)
    reports = []
    for _ in islice(loop.run(), 2):
        reports.append(loop.report)
    return loop.parts.model.state_dict(), reports


class Doubled:
    """A recipe whose images are in double precision."""

    def __init__(self, recipe):
        self._recipe = recipe

    def apply(self, *args, **kwargs):
        return self._recipe.apply(*args, **kwargs).double()


@pytest.mark.parametrize(
    ("method", "loss", "mixing"),
    [
        *((method, "cross-entropy", mixing) for method in [*RULES, *CONTROLS] for mixing in MIXINGS),
        *(("bilevel", loss, None) for loss in PURE_LOSSES),
    ],
)
def test_joined_or_single_the_steps_are_the_same(method, loss, mixing):
    settings = {"method": method, "loss": loss, "mixing": mixing}
    (single, reports), (joined, own_reports) = (after_two_steps(passes=each, **settings) for each in BOTH)
    torch.testing.assert_close(joined, single, rtol=1e-8, atol=1e-10)
    for report, own in zip(reports, own_reports, strict=True):
        torch.testing.assert_close(own.losses, report.losses, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_ends_bit_for_bit_as_an_unbroken_one(stop):
    with_dropout = digits(passes="joined", data__limit=512, epochs=2, noise="uniform:0.5")
    assert_resumed_is_unbroken(with_dropout, stop)


def test_joined_passes_are_fewer():
    counts = {}
    for passes in BOTH:
        loop = started(digits(passes=passes, data__limit=256))
        counts[passes] = 0

        def count(*_, passes=passes):
            counts[passes] += 1

        loop.parts.model.register_forward_hook(count)
        next(loop.run())
    assert counts == {"single": 8, "joined": 1}  # 128 images


def test_sgd_which_has_one_pass_anyway_is_left_as_it_is():
    (single, _), (joined, _) = (after_two_steps(passes=each, method="sgd") for each in BOTH)
    assert same(joined, single)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"loss": "early-learning"}, "loss early-learning, which makes the passes itself"),
        ({"shared_dropout": True}, "shared_dropout: in one pass"),
        ({"device": "cuda", "precision": "float16"}, "precision 'float16', whose losses are scaled"),
    ],
)
def test_what_does_not_go_with_it_is_refused_with_the_remedy(settings, reason):
    spec = digits(**settings)
    assert isinstance(spec, RunSpec)
    with pytest.raises(SpecError, match=f"passes 'joined' does not go with {reason}.*; take passes 'single'"):
        digits(**settings, passes="joined")


def test_single_passes_leave_the_id_as_it_was_and_joined_ones_have_another():
    spec = digits()
    assert digits(passes="single").id == spec.id
    assert digits(passes="joined").id != spec.id
