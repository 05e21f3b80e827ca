"""Averaging is ordinary training: with one mini-batch the plain loop, with k gradient accumulation."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel.methods import (
    METHODS,
    AgreementFilterSpec,
    AndMaskSpec,
    Average,
    BilevelSpec,
    CrossValidatedSpec,
    GsnrSpec,
    MedianOfThreeSpec,
    SgdSpec,
    UniformSpec,
)
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


def by_average(model, num_batches, **arguments):
    average = Average(model, num_batches=num_batches, **arguments)

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
    ours, plain = by_average(build(name), 1), by_accumulation(build(name), 1)
    for one, other in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.equal(one, other)


@ALL_NETWORKS
@pytest.mark.parametrize(("num_batches", "leave_out"), [(3, 0), (4, 0), (4, 1), (6, 5)])
def test_k_mini_batches_are_gradient_accumulation(name, num_batches, leave_out):
    ours = by_average(build(name), num_batches, leave_out=leave_out)
    plain = by_accumulation(build(name), num_batches, first=leave_out)
    for one, other in zip(ours.state_dict().values(), plain.state_dict().values(), strict=True):
        # Nothing but rounding in float64: a weight that went through float32 would be off by 1e-8.
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-13)


def test_the_gradient_is_the_mean_of_those_learned_from():
    rows = gradient_matrix(build("CifarNet-like"), images(5))
    model = build("CifarNet-like")
    average = Average(model, num_batches=5, leave_out=2)
    torch.manual_seed(0)
    report = average.step_over(images(5), lambda batch: F.cross_entropy(model(batch[0]), batch[1]))
    torch.testing.assert_close(flat_grad(model), rows[2:].mean(dim=0), rtol=1e-12, atol=1e-15)
    assert report.weights.tolist() == pytest.approx([1 / 3] * 3)
    assert report.losses.shape == report.finite.shape == (5,)
    assert report.applied


def test_a_mini_batch_that_is_left_out_is_computed_all_the_same():
    model = nn.BatchNorm1d(2).double()
    average = Average(model, num_batches=2, leave_out=1)
    inputs = [torch.tensor([[1.0, 2.0], [3.0, 4.0]]).double(), torch.tensor([[0.0, 1.0], [5.0, 5.0]]).double()]
    average.step_over(inputs, lambda x: model(x).square().sum())
    assert model.num_batches_tracked == 2


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_is_skipped_and_the_report_says_what_was_not_finite(bad, place):
    gradients = torch.ones(3, 2)
    gradients[place, 0] = bad
    vectors = Vectors(gradients)
    average = Average([vectors.parameter], num_batches=3, leave_out=1)
    for loss in vectors.losses():
        average.backward(loss)
    report = average.fill()
    assert report.finite.tolist() == [number != place for number in range(3)]
    assert bool(torch.isfinite(vectors.parameter.grad).all()) == (place == 0)
    assert vectors.parameter.grad[1] == 1


def scales(gradient_of_step, num_batches, leave_out, step_of, growth_interval=2):
    """Return the loss scale before every step and the parameter after it; gradients are those times the scale."""
    parameter = nn.Parameter(torch.zeros(2))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=growth_interval)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    fill = step_of(parameter, scaler, num_batches, leave_out)
    seen = []
    for gradients in gradient_of_step:
        optimizer.zero_grad()
        seen.append(scaler.get_scale())
        fill(gradients)
        scaler.step(optimizer)
        scaler.update()
        seen.append(parameter.tolist())
    return seen


def scaled_average(parameter, scaler, num_batches, leave_out):
    average = Average([parameter], num_batches=num_batches, leave_out=leave_out, scaler=scaler)
    return lambda gradients: average.step_over(list(gradients), lambda gradient: parameter @ gradient)


def scaled_accumulation(parameter, scaler, num_batches, leave_out):
    def fill(gradients):
        for gradient in gradients[leave_out:]:
            scaler.scale(parameter @ gradient / (num_batches - leave_out)).backward()

    return fill


@pytest.mark.parametrize(("num_batches", "leave_out"), [(1, 0), (4, 0), (3, 1)])
def test_a_scaler_moves_as_in_a_plain_loop_where_what_is_learned_from_overflows(num_batches, leave_out):
    steps = torch.arange(1.0, 8 * num_batches * 2 + 1).reshape(8, num_batches, 2)
    steps[[1, 2, 5], -1] = torch.inf
    ours = scales(steps, num_batches, leave_out, scaled_average)
    assert ours == scales(steps, num_batches, leave_out, scaled_accumulation)
    assert min(ours[::2]) < 2.0**8


def test_a_scaler_is_told_of_an_overflow_that_is_left_out():
    steps = torch.ones(4, 3, 2)
    steps[0, 0] = torch.inf
    seen = scales(steps, 3, 1, scaled_average, growth_interval=100)
    assert seen[::2] == [2.0**8, 2.0**8, 2.0**7, 2.0**7]  # lowered as the next group begins
    assert seen[1::2] == [[-number, -number] for number in (1.0, 2.0, 3.0, 4.0)]


def test_memory_does_not_grow_with_the_number_of_mini_batches():
    def peak(num_batches):
        model = nn.Linear(1000, 100, bias=False)
        average = Average(model, num_batches=num_batches)
        with LiveBytes() as live:
            average.step_over(range(num_batches), lambda i: model(torch.ones(1, 1000)).sum())
        return live.peak

    # The sum, the gradient under way, and what autograd needs to make it: 400,000 bytes each.
    assert peak(8) < peak(3) + 1000 < 3.1 * 400_000


def test_gradients_of_the_last_step_are_not_written_to():
    model = nn.Linear(2, 1, bias=False)
    average = Average(model, num_batches=2)
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
        ({"num_batches": 2, "leave_out": 2}, ValueError, r"leave_out must lie in 0 .. num_batches - 1 = 1, got 2"),
        ({"num_batches": 2, "leave_out": -1}, ValueError, "leave_out must lie in .* got -1"),
        ({"num_batches": 2.0}, TypeError, "num_batches must be a whole number, got 2.0"),
        ({"num_batches": True}, TypeError, "num_batches must be a whole number, got True"),
        ({"num_batches": 3, "leave_out": 0.5}, TypeError, "leave_out must be a whole number, got 0.5"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, error, message):
    with pytest.raises(error, match=message):
        Average(nn.Linear(1, 1), **settings)


def test_numbers_of_numpy_are_stored_as_plain_ones():
    state = Average(nn.Linear(1, 1), num_batches=np.int64(3), leave_out=np.int32(1)).state_dict()
    assert state == {"num_batches": 3, "leave_out": 1}
    assert {type(value) for value in state.values()} == {int}


def test_a_step_that_fails_leaves_a_fresh_group():
    model = build("CifarNet-like")
    average = Average(model, num_batches=2)
    fresh = deepcopy(model)

    def loss_of(batch):
        if average.num_collected == 1:
            raise KeyboardInterrupt
        return F.cross_entropy(model(batch[0]), batch[1])

    with pytest.raises(KeyboardInterrupt):
        average.step_over(images(2), loss_of)
    for one, step in ((model, average), (fresh, Average(fresh, num_batches=2))):
        torch.manual_seed(0)
        step.step_over(images(2), lambda batch, one=one: F.cross_entropy(one(batch[0]), batch[1]))
    assert torch.equal(flat_grad(model), flat_grad(fresh))


def test_the_catalog_names_every_method_by_its_kind():
    known = {"bilevel": BilevelSpec, "cross-validated": CrossValidatedSpec, "sgd": SgdSpec, "uniform": UniformSpec}
    relatives = {
        "and-mask": AndMaskSpec,
        "median-of-three": MedianOfThreeSpec,
        "gsnr": GsnrSpec,
        "agreement-filter": AgreementFilterSpec,
    }
    assert known | relatives == METHODS
    assert [name for name in METHODS if not METHODS[name].splits] == ["sgd"]
    assert [name for name in METHODS if METHODS[name].matches] == ["bilevel", "uniform"]
