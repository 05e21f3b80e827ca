"""Gradients that are not finite, wrong calls and bad arguments: nothing is lost, nothing is half done."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from deepbilevel import Bilevel, GroupStep
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.momentum import MomentumBilevel
from tests.models import Vectors

BAD = [math.nan, math.inf, -math.inf]
VARIANTS = [
    BilevelRule(),
    ExactBilevel(),
    BilevelRule(normalize=False),
    BilevelRule(weighting="cosine"),
    MomentumBilevel(),
]


def fill(gradients: torch.Tensor, rule=BilevelRule(), **settings):  # noqa: B008 - it is frozen
    vectors = Vectors(gradients)
    bilevel = GroupStep([vectors.parameter], replace(rule, **settings), num_batches=len(gradients))
    for loss in vectors.losses():
        bilevel.backward(loss)
    return bilevel.fill(), vectors.parameter.grad


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_training_mini_batch_that_is_not_finite_is_left_out_and_the_rest_go_on(variant, bad):
    good = torch.tensor([[1.0, 2.0], [0.5, 1.0], [1.0, -0.2]])
    report, gradient = fill(torch.cat([good[:2], torch.tensor([[1.0, bad]]), good[2:]]), variant)
    without, expected = fill(good, variant)
    assert report.skipped == (2,)
    assert report.applied
    assert report.weights[1] == 0
    torch.testing.assert_close(report.weights[[0, 2]], without.weights)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_bad_validation_gradient_zeroes_the_step(variant, bad):
    report, gradient = fill(torch.tensor([[1.0, bad], [1.0, 1.0], [2.0, 1.0]]), variant)
    assert report.skipped == (0,)
    assert not report.applied
    assert gradient.tolist() == [0.0, 0.0]
    assert report.weights.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_no_finite_training_gradient_zeroes_the_step(variant):
    report, gradient = fill(torch.tensor([[1.0, 1.0], [1.0, math.nan], [math.inf, 1.0]]), variant)
    assert report.skipped == (1, 2)
    assert not report.applied
    assert gradient.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("mu", [0.0, 0.01])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_a_group_of_zero_gradients_gives_zero(variant, mu):
    report, gradient = fill(torch.zeros(3, 2), variant, mu=mu)
    assert gradient.tolist() == [0.0, 0.0]
    assert report.agreement.tolist() == [0.0, 0.0]
    assert not report.applied
    assert report.skipped == ()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_training_gradients_orthogonal_to_validation_give_zero(variant):
    report, gradient = fill(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -2.0]]), variant)
    assert gradient.tolist() == [0.0, 0.0]
    assert not report.applied


@pytest.mark.parametrize("scale", [1e-15, 1e15])
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_extreme_scales_stay_finite(variant, scale):
    report, gradient = fill(scale * torch.tensor([[1.0, 2.0], [0.5, 1.0], [1.0, -0.2]]), variant)
    assert torch.isfinite(gradient).all()
    assert torch.isfinite(report.weights).all()


def test_weights_beyond_the_range_of_float_zero_the_step():
    report, gradient = fill(torch.tensor([[1e25, 0.0], [1e-20, 0.0], [1.0, 0.0]]), mu=0.0)
    assert gradient.tolist() == [0.0, 0.0]
    assert not report.applied
    assert report.weights.tolist() == [0.0, 0.0]


def test_one_bad_layer_discards_the_whole_mini_batch():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    bilevel = Bilevel(model, num_batches=3, per_layer=True)
    for factor in (1.0, math.inf, 1.0):
        bilevel.backward(model[0].weight.sum() + factor * model[1].weight.sum())
    report = bilevel.fill()
    assert report.skipped == (1,)
    assert report.weights.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert [p.grad.item() for p in model.parameters()] == [1.0, 1.0]


@pytest.fixture
def half_done():
    """Return a step in the middle of a group, with a gradient in place that a refused call must not disturb."""
    model = nn.Linear(2, 1, bias=False)
    bilevel = Bilevel(model, num_batches=3)
    bilevel.backward(model(torch.ones(1, 2)).sum())
    model.weight.grad = torch.full((1, 2), 7.0)
    return model, bilevel


def meta_loss(model):
    return nn.Linear(2, 1, device="meta")(torch.ones(1, 2, device="meta")).sum()


@pytest.mark.parametrize(
    ("make_loss", "error", "message"),
    [
        (lambda m: 1.0, TypeError, "loss must be a tensor, got float"),
        (lambda m: m(torch.ones(3, 2)), ValueError, r"single number, got shape \(3, 1\).*loss.mean\(\)"),
        (lambda m: m(torch.ones(1, 2)).sum().detach(), ValueError, "does not depend on any trainable parameter"),
        (lambda m: nn.Linear(2, 1)(torch.ones(2)).sum(), ValueError, "does not depend on any of the parameters"),
        (meta_loss, ValueError, r"loss is on meta but the parameters are on cpu.*\.to\('cpu'\)"),
    ],
    ids=["number", "vector", "detached", "foreign", "device"],
)
def test_a_bad_loss_is_refused_and_changes_nothing(half_done, make_loss, error, message):
    model, bilevel = half_done
    with pytest.raises(error, match=message):
        bilevel.backward(make_loss(model))
    assert bilevel.num_collected == 1
    assert model.weight.grad.tolist() == [[7.0, 7.0]]
    for _ in range(2):
        bilevel.backward(model(torch.ones(1, 2)).sum())
    assert bilevel.fill().weights.tolist() == [0.5, 0.5]


def test_an_exception_inside_backward_changes_nothing(half_done):
    model, bilevel = half_done
    hook = model.weight.register_hook(lambda gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        bilevel.backward(model(torch.ones(1, 2)).sum())
    hook.remove()
    assert bilevel.num_collected == 1
    assert model.weight.grad.tolist() == [[7.0, 7.0]]


def test_fill_before_the_group_is_full_is_refused(half_done):
    model, bilevel = half_done
    with pytest.raises(RuntimeError, match=r"got 1 of num_batches=3 losses; call backward\(\)"):
        bilevel.fill()
    assert bilevel.num_collected == 1
    assert model.weight.grad.tolist() == [[7.0, 7.0]]


def test_one_backward_too_many_is_refused(half_done):
    model, bilevel = half_done
    for _ in range(2):
        bilevel.backward(model(torch.ones(1, 2)).sum())
    with pytest.raises(RuntimeError, match=r"once more than num_batches=3 times; call fill\(\) first"):
        bilevel.backward(model(torch.ones(1, 2)).sum())
    assert bilevel.full
    assert bilevel.fill().applied


def test_sparse_gradients_are_refused():
    model = nn.Embedding(4, 2, sparse=True)
    with pytest.raises(ValueError, match="sparse=False"):
        Bilevel(model, num_batches=2).backward(model(torch.tensor([1])).sum())
    assert model.weight.grad is None


def test_parameters_on_several_devices_are_refused():
    model = nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1, device="meta")])
    with pytest.raises(ValueError, match=r"several devices \(cpu, meta\)"):
        Bilevel(model, num_batches=2).backward(model[0](torch.ones(2)).sum())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"num_batches": 1}, ValueError, "num_batches must be at least 2, got 1; rule bilevel compares"),
        ({"num_batches": 2.0}, TypeError, "num_batches must be a whole number, got 2.0"),
        ({"num_batches": True}, TypeError, "num_batches must be a whole number"),
        ({"num_batches": 2, "mu": -1.0}, ValueError, "mu must be finite and not negative, got -1.0"),
        ({"num_batches": 2, "lam": 0.0}, ValueError, "lam must be positive and finite, got 0.0"),
        ({"num_batches": 2, "mu": "0.01"}, TypeError, "mu must be a number, got '0.01'"),
        ({"num_batches": 2, "normalize": 1}, TypeError, "normalize must be True or False, got 1"),
        ({"num_batches": 2, "per_layer": None}, TypeError, "per_layer must be True or False, got None"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Bilevel(nn.Linear(1, 1), **arguments)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ([], ValueError, "holds no parameter"),
        (None, TypeError, "got NoneType; pass the model"),
        (torch.optim.SGD([nn.Parameter(torch.ones(1))]), TypeError, r"got SGD; pass its \.param_groups"),
        (nn.ReLU(), ValueError, "holds no parameter"),
        (torch.ones(1, requires_grad=True), TypeError, "put it in a list"),
        (["weight"], TypeError, "must hold tensors, got str"),
        ([torch.ones(1, requires_grad=True) * 2], ValueError, "leaf"),
        ([nn.Parameter(torch.ones(1, dtype=torch.complex64))], ValueError, "complex64.*view_as_real"),
    ],
)
def test_bad_parameters_are_named(parameters, error, message):
    with pytest.raises(error, match=message):
        Bilevel(parameters, num_batches=2)


def test_weights_per_layer_need_a_module():
    with pytest.raises(TypeError, match="pass the model itself as model_or_parameters"):
        Bilevel(list(nn.Linear(1, 1).parameters()), num_batches=2, per_layer=True)


def test_one_call_refuses_groups_of_the_wrong_size():
    model = nn.Linear(2, 1)
    bilevel = Bilevel(model, num_batches=3)

    def loss_of(x):
        return model(x).sum()

    with pytest.raises(ValueError, match="group has 2 mini-batches, expected num_batches=3"):
        bilevel.step_over([torch.ones(2)] * 2, loss_of)
    with pytest.raises(ValueError, match="group ended after 2 mini-batches"):
        bilevel.step_over(iter([torch.ones(2)] * 2), loss_of)
    assert bilevel.num_collected == 0
    bilevel.backward(loss_of(torch.ones(2)))
    with pytest.raises(RuntimeError, match="1 mini-batches are already collected"):
        bilevel.step_over([torch.ones(2)] * 3, loss_of)


def test_an_exception_in_the_callers_loss_drops_the_group():
    model = nn.Linear(2, 1)
    bilevel = Bilevel(model, num_batches=3)
    batches = iter([torch.ones(2), torch.ones(5), torch.ones(2)])
    with pytest.raises(RuntimeError, match="shape"):
        bilevel.step_over(batches, lambda x: model(x).sum())
    assert bilevel.num_collected == 0
    assert bilevel.step_over([torch.ones(2)] * 3, lambda x: model(x).sum()).applied


def test_a_scaler_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"scaler must be a torch\.amp\.GradScaler, got True"):
        Bilevel([nn.Parameter(torch.ones(1))], num_batches=3, scaler=True)


def test_it_shows_its_settings():
    shown = repr(Bilevel([nn.Parameter(torch.ones(1))], num_batches=3, mu=0.5))
    assert shown.startswith("Bilevel(BilevelRule(mu=0.5, lam=1.0, ")
    assert shown.endswith("), num_batches=3)")
