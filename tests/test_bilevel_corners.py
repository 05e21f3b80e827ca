"""Corners of the step that a wrong implementation could pass by: each of these tests caught a planted mistake."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from deepbilevel import Bilevel
from deepbilevel.rules.exact import ExactBilevel
from tests.contracts.loop import BILEVEL, K, by, collect, every_bilevel, every_step, filled
from tests.models import Vectors, build, flat_grad, images
from tests.test_loop_contract import Branching
from tests.test_memory import LiveBytes


@every_step
def test_fill_removes_a_gradient_that_no_mini_batch_gave(make):
    model = build("CifarNet-like")
    model.unused = nn.Linear(2, 2).double()
    step = make(model, num_batches=K)
    collect(model, step, images(K))
    model.unused.weight.grad = torch.ones(2, 2).double()
    step.fill()
    assert model.unused.weight.grad is None


@every_step
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_equal_those_of_float32(make, dtype):
    reports, grads = [], []
    for precision in (dtype, torch.float32):
        torch.manual_seed(0)  # random weights are then the same
        model = nn.Linear(200, 50).to(precision)
        step = make(model, num_batches=4)
        for factor in (300.0, 300.0, 0.5, -20.0):  # dots far beyond float16's 65504
            step.backward(factor * model(torch.ones(1, 200, dtype=precision)).sum())
        reports.append(step.fill())
        grads.append(model.weight.grad.float())
    assert reports[0].applied
    torch.testing.assert_close(reports[0].weights, reports[1].weights, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(*grads, rtol=1e-2, atol=1e-3)


def test_small_contributions_to_a_half_precision_sum_are_not_lost():
    parameter = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    bilevel = Bilevel([parameter], num_batches=102, normalize=False, mu=0.0)
    rows = [
        (1.0, 0.0),
        (1.0, 1.0),
        *[(2.0**-10, 1.0)] * 100,
    ]  # 1/2 + 2^-10 is 1/2 in bfloat16
    for row in rows:
        bilevel.backward(parameter @ torch.tensor(row, dtype=torch.bfloat16))
    bilevel.fill()
    assert parameter.grad[1].item() == pytest.approx(0.5 + 100 * 2.0**-10, rel=0.01)


@every_step
def test_a_parameter_first_touched_by_a_later_training_mini_batch_counts(make):
    torch.manual_seed(0)
    model = Branching()
    x = torch.tensor([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, 2.0]], [[-2.0, 1.0]]], dtype=torch.float64)
    grads = []
    for touch in (0, 1):  # 1: every parameter has a gradient, of zero where the mini-batch does not use it
        torch.manual_seed(1)  # of random weights, all positive
        step = make(model, num_batches=4)
        for row in x:
            step.backward(model(row).square().sum() + (sum(0.0 * p.sum() for p in model.parameters()) if touch else 0))
        assert step.fill().applied
        grads.append([torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()])
    for sparse, dense in zip(*grads, strict=True):
        torch.testing.assert_close(sparse, dense)
    assert model.right.weight.grad.abs().sum() > 0


def test_comparing_channels_last_gradients_copies_nothing():
    weight = nn.Parameter(torch.zeros(64, 16, 5, 5).to(memory_format=torch.channels_last))
    bilevel = Bilevel([weight], num_batches=3)
    losses = [(weight * torch.ones_like(weight)).sum() for _ in range(3)]
    size = weight.numel() * 4
    with LiveBytes() as memory:
        for loss in losses:
            bilevel.backward(loss)
    assert memory.peak / size < 3.1


@every_bilevel
def test_one_overflow_of_many_lowers_the_scale_and_leaves_the_gradient_alone(make):
    def group(scaler):
        torch.manual_seed(0)  # random weights are then the same
        model = nn.Linear(2, 1, bias=False)
        nn.init.ones_(model.weight)
        step = make(model, num_batches=4, scaler=scaler)
        for factor in (1.0, 2.0, math.inf, 3.0):
            step.backward((model.weight * torch.tensor([factor, 1.0])).sum())
        report = step.fill()
        if scaler is not None:
            assert scaler.get_scale() == 2.0**10  # other gradients may still be scaled by it
            scaler.unscale_(torch.optim.SGD(model.parameters(), lr=1.0))
        gradient = model.weight.grad
        step.backward(model.weight.sum())
        return report, gradient

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    (ours, scaled), (plain, gradient) = group(scaler), group(None)
    assert ours.skipped == plain.skipped == (2,)
    assert scaler.get_scale() == 2.0**9
    torch.testing.assert_close(scaled, gradient)
    torch.testing.assert_close(ours.losses, plain.losses)  # reported as they came, not scaled


@every_step
@pytest.mark.parametrize("shape", [(1,), (1, 1)])
def test_a_loss_of_one_element_is_a_number_whatever_its_shape(make, shape):
    model = nn.Linear(2, 1)
    step = make(model, num_batches=3)  # the fewest that every rule takes
    for _ in range(3):
        step.backward(model(torch.ones(1, 2)).reshape(shape))
    assert step.fill().losses.shape == (3,)


@every_step
def test_unfrozen_parameters_are_weighted_like_the_others(make):
    model, batches = build("CifarNet-like"), images(K)
    model.features.requires_grad_(False)
    step = make(model, num_batches=K)
    model.features.requires_grad_(True)
    collect(model, step, batches)
    step.fill()
    assert torch.equal(flat_grad(model), filled(build("CifarNet-like"), make, batches))


def test_a_parameter_named_twice_counts_once():
    vectors = Vectors(torch.tensor([[1.0, 2.0], [0.5, 1.0], [1.0, -0.2]]))
    grads = []
    for parameters in ([vectors.parameter], [vectors.parameter, vectors.parameter]):
        bilevel = Bilevel(parameters, num_batches=3)
        for loss in vectors.losses():
            bilevel.backward(loss)
        bilevel.fill()
        grads.append(vectors.parameter.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("normalize", [True, False])
def test_weights_beyond_the_range_of_float_zero_the_step(normalize):
    vectors = Vectors(torch.tensor([[1e25, 0.0], [1e-20, 0.0], [1.0, 0.0]]))
    bilevel = Bilevel([vectors.parameter], num_batches=3, mu=0.0, normalize=normalize)
    for loss in vectors.losses():
        bilevel.backward(loss)
    report = bilevel.fill()
    assert vectors.parameter.grad.tolist() == [0.0, 0.0]
    assert report.weights.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("make", [Bilevel, by(ExactBilevel())], ids=["diagonal", "exact"])
def test_a_skipped_mini_batch_has_no_agreement(make):
    vectors = Vectors(torch.tensor([[1.0, 2.0], [0.5, 1.0], [1.0, math.inf]]))
    bilevel = make([vectors.parameter], num_batches=3)
    for loss in vectors.losses():
        bilevel.backward(loss)
    assert bilevel.fill().agreement.tolist() == pytest.approx([1.0, 0.0])


@every_bilevel
def test_no_rule_takes_the_state_of_another(make):
    model = build("CifarNet-like")
    step = make(model, num_batches=K)
    for other in BILEVEL.values():
        state = other(model, num_batches=K).state_dict()
        if other is make:
            step.load_state_dict(state)
        else:
            with pytest.raises(ValueError, match=r"state was saved with rule\.\w+=.*, this step has rule\.\w+="):
                step.load_state_dict(state)


@pytest.mark.parametrize(
    "make", [partial(Bilevel, per_layer=True), by(ExactBilevel(per_layer=True))], ids=["diagonal", "exact"]
)
def test_one_bad_layer_of_the_validation_gradient_zeroes_the_whole_step(make):
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    bilevel = make(model, num_batches=3)
    for factor in (math.inf, 1.0, 1.0):
        bilevel.backward(model[0].weight.sum() + factor * model[1].weight.sum())
    report = bilevel.fill()
    assert report.skipped == (0,)
    assert not report.applied
    assert [p.grad.item() for p in model.parameters()] == [0.0, 0.0]
