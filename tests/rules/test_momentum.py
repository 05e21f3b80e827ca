"""The validation gradient averaged over groups: equal to the textbook, sound amid bad gradients, and resumable."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import Bilevel, GroupStep, gradients
from deepbilevel.rules.momentum import MomentumBilevel
from tests import reference
from tests.contracts.loop import collect
from tests.models import build, flat_grad, images
from tests.test_rule import IMPOSSIBLE
from tests.training.test_packing import same, travel


def by_momentum(parameters, *, num_batches, **settings):
    return GroupStep(parameters, MomentumBilevel(**settings), num_batches=num_batches)


def step_through(groups, make=by_momentum, **settings):
    """Hand groups of given gradients to one step; return its reports, the gradients it left, and the step."""
    parameter = nn.Parameter(torch.zeros(groups.shape[-1], dtype=torch.float64))
    step = make([parameter], num_batches=groups.shape[1], **settings)
    reports, filled = [], []
    for group in groups:
        reports.append(take(step, parameter, group))
        filled.append(parameter.grad.clone())
    return reports, filled, step


def take(step, parameter, group):
    for row in group:
        step.backward(parameter @ torch.as_tensor(row, dtype=torch.float64))
    return step.fill()


def random_groups(num_groups, k=4, seed=0):
    return np.random.RandomState(seed).randn(num_groups, k, 6) + 0.3


def test_momentum_worked_by_hand():
    groups = np.array([[[4.0, 0.0], [1.0, 1.0]], [[0.0, 4.0], [1.0, -2.0]]])
    reports, filled, step = step_through(groups, momentum=0.75, mu=0.0)
    average = step.state_dict()["memory"]["average"][0]
    assert average.tolist() == [3.0, 1.0]  # 0.75 (4, 0) + 0.25 (0, 4)
    assert reports[1].raw_weights.tolist() == pytest.approx([(3 - 2) / 5])  # the first mini-batch alone says -8 / 5
    assert reports[1].agreement.tolist() == pytest.approx([1 / 50**0.5])
    assert reports[1].norms.tolist() == pytest.approx([4.0, 5**0.5])
    assert filled[1].tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "settings", [{}, {"weighting": "cosine"}, {"weighting": "absolute"}, {"weighting": "clipped"}], ids=str
)
def test_momentum_equals_the_reference_with_the_average_in_the_first_place(settings):
    groups = random_groups(6)
    reports, filled, _ = step_through(groups, momentum=0.8, **settings)
    average = groups[0, 0]
    for number, group in enumerate(groups):
        average = 0.8 * average + 0.2 * group[0] if number else average
        theirs = reference.solve(np.vstack([average, group[1:]]), lam=1.0, mu=0.01, **settings)
        np.testing.assert_allclose(filled[number], theirs.gradient, rtol=1e-9)
        np.testing.assert_allclose(reports[number].weights, theirs.weights, rtol=1e-9)
        cosines = [reference.cosine(average, row) for row in group[1:]]
        np.testing.assert_allclose(reports[number].agreement, cosines, rtol=1e-9)


@given(st.integers(0, 2**31))
def test_momentum_of_zero_is_the_first_mini_batch_alone(seed):
    groups = random_groups(3, seed=seed)
    without = step_through(groups, make=Bilevel)[1]
    for one, other in zip(without, step_through(groups, momentum=0)[1], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 2])
def test_a_bad_validation_gradient_does_not_poison_the_average(place, bad, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    groups = random_groups(4)
    broken = np.insert(groups, place, groups[0], axis=0)
    broken[place, 0, 2] = bad
    expected = step_through(groups)[1]
    reports, filled, _ = step_through(broken)
    assert not reports[place].applied
    assert filled.pop(place).tolist() == [0.0] * 6
    for one, other in zip(expected, filled, strict=True):
        assert torch.equal(one, other)


def test_a_bad_training_gradient_leaves_the_average_alone():
    groups = random_groups(3)
    broken = groups.copy()
    broken[1, 2, 0] = math.nan
    averages = [step_through(each)[2].state_dict()["memory"]["average"] for each in (groups, broken)]
    assert torch.equal(averages[0][0], averages[1][0])


def test_a_dropped_group_leaves_no_trace_in_the_average():
    groups = random_groups(3)
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    step = GroupStep([parameter], MomentumBilevel(), num_batches=4)
    take(step, parameter, groups[0])
    before = step.state_dict()
    for row in groups[1][:2]:
        step.backward(parameter @ torch.from_numpy(row))
    step.reset()
    assert same(step.state_dict(), before)
    take(step, parameter, groups[2])
    assert torch.equal(parameter.grad, step_through(groups[[0, 2]])[1][1])


@pytest.mark.parametrize("settings", [{}, {"per_layer": True}, {"weighting": "cosine"}], ids=str)
def test_resumed_from_a_checkpoint_it_equals_unbroken_bit_for_bit(settings):
    model = build("BatchNorm-like").float()
    groups = [[(x.float(), y) for x, y in images(3, seed=seed)] for seed in range(4)]
    unbroken, resumed, fresh = (GroupStep(model, MomentumBilevel(**settings), num_batches=3) for _ in range(3))
    for group in groups[:2]:
        collect(model, unbroken, group)
        unbroken.fill()
    state = travel(unbroken.state_dict())
    assert same(state, unbroken.state_dict())
    resumed.load_state_dict(state)
    filled = []
    for step in (unbroken, resumed):
        for group in groups[2:]:
            collect(model, step, group)
            step.fill()
        filled.append(flat_grad(model))
    assert torch.equal(*filled)
    assert same(resumed.state_dict(), unbroken.state_dict())
    for group in groups[2:]:
        collect(model, fresh, group)
        fresh.fill()
    assert not torch.equal(flat_grad(model), filled[0])  # the memory matters


def test_the_average_of_another_model_is_refused_and_nothing_changes():
    state = step_through(random_groups(1))[2].state_dict()
    other = GroupStep([nn.Parameter(torch.zeros(2))], MomentumBilevel(), num_batches=4)
    before = other.state_dict()
    with pytest.raises(ValueError, match=r"average has a tensor of shape \(6,\) for parameter 0"):
        other.load_state_dict(state)
    assert other.state_dict() == before


def test_a_parameter_that_thaws_later_joins_the_average_as_if_it_had_been_zero():
    one, two = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1), requires_grad=False)
    step = GroupStep([one, two], MomentumBilevel(momentum=0.5), num_batches=2)
    for trainable in (False, True, False):
        two.requires_grad_(trainable)
        for _ in range(2):
            step.backward(2 * one.sum() + 4 * two.sum())
        step.fill()
        found = step.state_dict()["memory"]["average"]
        assert found[0].tolist() == [2.0]
    assert found[1].tolist() == [1.0]  # 0, then 2, then 1


@pytest.mark.parametrize("memory", [{"average": {}}, {"started": torch.tensor(True)}, {"averages": {}}])
def test_a_memory_of_something_else_is_refused_and_nothing_changes(memory):
    step = step_through(random_groups(1))[2]
    before = step.state_dict()
    with pytest.raises(ValueError, match=r"memory has the keys \[.*\], expected \['average', 'started'\]"):
        step.load_state_dict(before | {"memory": memory})
    assert same(step.state_dict(), before)


@pytest.mark.parametrize(
    ("momentum", "error", "message"),
    [
        (1.0, ValueError, r"momentum must lie in 0 .. 1, got 1\.0; it must be below 1; 0 forgets"),
        (-0.1, ValueError, r"momentum must lie in 0 .. 1, got -0\.1"),
        (math.nan, ValueError, "momentum must lie in 0 .. 1, got nan"),
        ("0.9", TypeError, "momentum must be a number, got '0.9'"),
    ],
)
def test_a_momentum_without_a_meaning_is_refused(momentum, error, message):
    with pytest.raises(error, match=message):
        MomentumBilevel(momentum=momentum)


@IMPOSSIBLE
def test_the_settings_of_bilevel_are_checked_as_there(setting, error, message):
    with pytest.raises(error, match=message):
        MomentumBilevel(**setting)
