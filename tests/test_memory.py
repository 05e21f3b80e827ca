"""What the step holds and what it waits for, counted rather than timed."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.cost.counting import LiveBytes
from deepbilevel import Bilevel, CrossValidated
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel.rules.momentum import MomentumBilevel
from tests.contracts.loop import by

SIZE = 10_000


class Forbidden(TorchDispatchMode):
    """Fails when a value is fetched from the device, as `.item()`, `bool(tensor)` and `float(tensor)` do."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "waited for the device"
        return function(*args, **(kwargs or {}))


def peak_in_models(num_batches: int, make=Bilevel, **settings) -> float:
    """Return the peak of live memory during two groups, in units of the model's size."""
    parameter = nn.Parameter(torch.zeros(SIZE))
    step = make([parameter], num_batches=num_batches, **settings)
    with LiveBytes() as memory:
        for _ in range(2):
            for _ in range(num_batches):
                # sin's backward makes the gradient afresh; inputs beyond it are a scalar
                step.backward(((parameter + 1).sin() * 2).sum())
            step.fill()
            parameter.grad = None
    return memory.peak / (4 * SIZE)


def test_streaming_memory_is_flat_in_the_number_of_mini_batches():
    assert peak_in_models(4) == pytest.approx(peak_in_models(32), rel=0.02)


def test_momentum_of_the_validation_gradient_costs_one_buffer_more_whatever_the_number_of_mini_batches():
    momentum = by(MomentumBilevel())
    assert peak_in_models(4, momentum) == pytest.approx(peak_in_models(4) + 1, rel=0.02)
    assert peak_in_models(32, momentum) == pytest.approx(peak_in_models(32) + 1, rel=0.02)


def test_between_mini_batches_momentum_holds_the_last_average_too_and_between_groups_the_new_one_alone():
    parameter = nn.Parameter(torch.zeros(SIZE))
    step = by(MomentumBilevel())([parameter], num_batches=8)
    with LiveBytes() as memory:
        for group in range(3):
            for i in range(8):
                loss = (parameter * 2).sum()
                step.backward(loss)
                del loss
                held = memory.live / (4 * SIZE)
                assert held == pytest.approx(min(i + 1, 2) + (group > 0), rel=0.02)
            step.fill()
            parameter.grad = None
            assert memory.live / (4 * SIZE) == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("block", ["parameter", "filter", "model"])
def test_the_cross_validated_gradient_needs_the_same_memory_for_any_number_of_mini_batches(block):
    few, many = (peak_in_models(k, CrossValidated, block=block) for k in (4, 32))
    assert few == pytest.approx(many, rel=0.02)


@pytest.mark.parametrize(("block", "buffers"), [("parameter", 2), ("model", 1)])
def test_between_mini_batches_the_cross_validated_gradient_holds_two_buffers_or_one(block, buffers):
    parameter = nn.Parameter(torch.zeros(SIZE))
    rule = CrossValidated([parameter], num_batches=8, block=block)
    with LiveBytes() as memory:
        for _ in range(8):
            loss = (parameter * 2).sum()
            rule.backward(loss)
            del loss
            assert memory.live / (4 * SIZE) == pytest.approx(buffers, rel=0.02)  # S1 and S2, or S1 and numbers
        rule.fill()
        assert memory.live / (4 * SIZE) == pytest.approx(1, rel=0.02)  # .grad


@pytest.mark.parametrize("rule", [ExactBilevel(), KFoldBilevel()], ids=str)
def test_the_exact_solver_and_k_fold_validation_hold_one_gradient_per_mini_batch(rule):
    per_batch = (peak_in_models(32, by(rule)) - peak_in_models(4, by(rule))) / 28
    assert per_batch == pytest.approx(1, rel=0.02)


def test_between_mini_batches_streaming_holds_two_buffers_and_three_with_the_next_gradient():
    parameter = nn.Parameter(torch.zeros(SIZE))
    bilevel = Bilevel([parameter], num_batches=8)
    with LiveBytes() as memory:
        for i in range(8):
            loss = (parameter * 2).sum()
            bilevel.backward(loss)
            del loss
            held = memory.live / (4 * SIZE)
            assert held == pytest.approx(min(i + 1, 2), rel=0.02)  # g_v, then g_v and the sum
        bilevel.fill()
        assert memory.live / (4 * SIZE) == pytest.approx(1, rel=0.02)  # .grad


_BILEVEL = ({}, {"normalize": False}, {"per_layer": True}, {"weighting": "cosine"})


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        *((Bilevel, settings) for settings in _BILEVEL),
        *((by(rule), {}) for rule in (KFoldBilevel(), MomentumBilevel())),
        *((CrossValidated, {"block": block}) for block in ("parameter", "filter", "layer", "model")),
    ],
)
def test_nothing_waits_for_the_device_before_the_report_is_read(make, settings):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    step = make(model, num_batches=3, **settings)
    losses = [model(torch.randn(2, 3)).square().mean() for _ in range(3)]
    with Forbidden():
        for loss in losses:
            step.backward(loss)
        report = step.fill()
    with Forbidden(), pytest.raises(AssertionError, match="waited"):  # the guard itself works
        assert report.applied
