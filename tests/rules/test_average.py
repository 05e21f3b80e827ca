"""Averaging is ordinary training: with one mini-batch the plain loop, with k gradient accumulation."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel import GroupStep
from deepbilevel.rules.average import Sgd, Uniform
from tests.models import NETWORKS, Vectors, build, flat_grad, gradient_matrix, images
from tests.test_memory import LiveBytes

STEPS = 5
ALL_NETWORKS = pytest.mark.parametrize("name", NETWORKS)


def train(model, step_of, num_batches):
    """Take a few steps of SGD with momentum; ``step_of`` fills ``.grad`` from a group."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in range(STEPS):
        torch.manual_seed(number)
        optimizer.zero_grad()
        step_of(images(num_batches, seed=number))
        optimizer.step()
    return model


# How many mini-batches, from the first, are computed and not learned from.
LEFT_OUT = {Sgd(): 0, Uniform(use_validation=True): 0, Uniform(): 1}


def by_average(model, rule, num_batches):
    average = GroupStep(model, rule, num_batches=num_batches)

    def step_of(group):
        average.step_over(group, lambda batch: F.cross_entropy(model(batch[0]), batch[1]))

    return train(model, step_of, num_batches)


def by_accumulation(model, num_batches, first=0):
    def step_of(group):
        for number, (x, y) in enumerate(group):
            loss = F.cross_entropy(model(x), y)
            if number >= first:
                (loss / (num_batches - first)).backward()

    return train(model, step_of, num_batches)


@ALL_NETWORKS
def test_one_mini_batch_is_the_plain_loop_bit_for_bit(name):
    ours, plain = by_average(build(name), Sgd(), 1), by_accumulation(build(name), 1)
    for one, other in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@ALL_NETWORKS
@pytest.mark.parametrize("rule", LEFT_OUT, ids=str)
@pytest.mark.parametrize("num_batches", [2, 3, 4, 6])
def test_k_mini_batches_are_gradient_accumulation(name, num_batches, rule):
    ours = by_average(build(name), rule, num_batches)
    plain = by_accumulation(build(name), num_batches, first=LEFT_OUT[rule])
    for one, other in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        # Nothing but rounding in float64: a weight that went through float32 would be off by 1e-8.
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("rule", LEFT_OUT, ids=str)
def test_the_gradient_is_the_mean_of_those_learned_from(rule):
    rows = gradient_matrix(build("CifarNet-like"), images(5))[LEFT_OUT[rule] :]
    model = build("CifarNet-like")
    average = GroupStep(model, rule, num_batches=5)
    torch.manual_seed(0)
    report = average.step_over(images(5), lambda batch: F.cross_entropy(model(batch[0]), batch[1]))
    torch.testing.assert_close(flat_grad(model), rows.mean(dim=0), rtol=1e-12, atol=1e-15)
    assert report.weights.tolist() == pytest.approx([1 / len(rows)] * len(rows))
    assert report.losses.shape == report.finite.shape == (5,)
    assert report.applied


def test_a_mini_batch_that_is_left_out_is_computed_all_the_same():
    model = nn.BatchNorm1d(2).double()
    average = GroupStep(model, Uniform(), num_batches=2)
    inputs = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double(), torch.tensor([[0.0, 1.0], [5.0, 5.0]]).double()]
    average.step_over(inputs, lambda x: model(x).square().sum())
    assert model.num_batches_tracked == 2


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_is_skipped_and_the_report_says_what_was_not_finite(bad, place):
    gradients = torch.ones(3, 2)
    gradients[place, 0] = bad
    vectors = Vectors(gradients)
    average = GroupStep([vectors.parameter], Uniform(), num_batches=3)
    for loss in vectors.losses():
        average.backward(loss)
    report = average.fill()
    assert report.finite.tolist() == [number != place for number in range(3)]
    assert bool(torch.isfinite(vectors.parameter.grad).all()) == (place == 0)
    assert vectors.parameter.grad[1] == 1


def scales(gradient_of_step, rule, step_of, growth_interval=2):
    """Return the loss scale before every step and the parameter after it; gradients are those times the scale."""
    parameter = nn.Parameter(torch.zeros(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=growth_interval)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    fill = step_of(parameter, scaler, rule, gradient_of_step.shape[1])
    seen = []
    for gradients in gradient_of_step:
        optimizer.zero_grad()
        seen.append(scaler.get_scale())
        fill(gradients)
        scaler.step(optimizer)
        scaler.update()
        seen.append(parameter.tolist())
    return seen


def scaled_average(parameter, scaler, rule, num_batches):
    average = GroupStep([parameter], rule, num_batches=num_batches, scaler=scaler)
    return lambda gradients: average.step_over(list(gradients), lambda gradient: parameter @ gradient)


def scaled_accumulation(parameter, scaler, rule, num_batches):
    def fill(gradients):
        for gradient in gradients[LEFT_OUT[rule] :]:
            scaler.scale(parameter @ gradient / (num_batches - LEFT_OUT[rule])).backward()

    return fill


@pytest.mark.parametrize(("num_batches", "rule"), [(1, Sgd()), (4, Uniform(use_validation=True)), (3, Uniform())])
def test_a_scaler_moves_as_in_a_plain_loop_where_what_is_learned_from_overflows(num_batches, rule):
    steps = torch.arange(1.0, 8 * num_batches * 2 + 1).reshape(8, num_batches, 2)
    steps[[1, 2, 5], -1] = torch.inf
    ours = scales(steps, rule, scaled_average)
    assert ours == scales(steps, rule, scaled_accumulation)
    assert min(ours[::2]) < 2.0**8


def test_a_scaler_is_told_of_an_overflow_that_is_left_out():
    steps = torch.ones(4, 3, 2)
    steps[0, 0] = torch.inf
    seen = scales(steps, Uniform(), scaled_average, growth_interval=100)
    assert seen[::2] == [2.0**8, 2.0**8, 2.0**7, 2.0**7]  # lowered as the next group begins
    assert seen[1::2] == [[-number, -number] for number in (1.0, 2.0, 3.0, 4.0)]


def test_memory_does_not_grow_with_the_number_of_mini_batches():
    def peak(num_batches):
        model = nn.Linear(1000, 100, bias=False)
        average = GroupStep(model, Uniform(use_validation=True), num_batches=num_batches)
        with LiveBytes() as live:
            average.step_over(range(num_batches), lambda i: model(torch.ones(1, 1000)).sum())
        return live.peak

    # The sum, the gradient under way, and what autograd needs to make it: 400,000 bytes each.
    assert peak(8) < peak(3) + 1000 < 3.1 * 400_000


def test_gradients_of_the_last_step_are_not_written_to():
    model = nn.Linear(2, 1, bias=False)
    average = GroupStep(model, Uniform(use_validation=True), num_batches=2)
    kept = []
    for factor in (1.0, 5.0):
        average.step_over([factor, factor], lambda x: model(torch.full((1, 2), x)).sum())
        kept.append(model.weight.grad)
    assert [gradient.tolist() for gradient in kept] == [[[1.0, 1.0]], [[5.0, 5.0]]]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"num_batches": 0}, ValueError, "num_batches must be at least 1, got 0"),
        ({"num_batches": -2}, ValueError, "num_batches must be at least 1, got -2"),
        ({"num_batches": 2.0}, TypeError, "num_batches must be a whole number, got 2.0"),
        ({"num_batches": True}, TypeError, "num_batches must be a whole number, got True"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, error, message):
    with pytest.raises(error, match=message):
        GroupStep(nn.Linear(1, 1), Sgd(), **settings)


@pytest.mark.parametrize("rule", [Uniform(), Uniform(use_validation=True)], ids=str)
def test_equal_weights_need_two_mini_batches_of_which_one_may_be_left_out(rule):
    with pytest.raises(ValueError, match="num_batches must be at least 2, got 1; rule uniform"):
        GroupStep(nn.Linear(1, 1), rule, num_batches=1)


def test_whether_the_first_mini_batch_is_used_is_a_flag():
    with pytest.raises(TypeError, match="use_validation must be True or False, got 1"):
        Uniform(use_validation=1)


def test_numbers_of_numpy_are_stored_as_plain_ones():
    state = GroupStep(nn.Linear(1, 1), Sgd(), num_batches=np.int64(3)).state_dict()
    assert state == {"rule": {"kind": "sgd"}, "num_batches": 3, "memory": {}}
    assert type(state["num_batches"]) is int


def test_a_step_that_fails_leaves_a_fresh_group():
    model = build("CifarNet-like")
    average = GroupStep(model, Uniform(use_validation=True), num_batches=2)
    fresh = deepcopy(model)

    def loss_of(batch):
        if average.num_collected == 1:
            raise KeyboardInterrupt
        return F.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(KeyboardInterrupt):
        average.step_over(images(2), loss_of)
    for one, step in ((model, average), (fresh, GroupStep(fresh, average.rule, num_batches=2))):
        torch.manual_seed(0)
        step.step_over(images(2), lambda batch, one=one: F.cross_entropy(one(batch[0]), batch[1]))
    assert torch.equal(flat_grad(model), flat_grad(fresh))
