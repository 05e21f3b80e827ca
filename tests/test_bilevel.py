"""The streaming step against the textbook, on vectors of every kind and on networks people train."""

from dataclasses import asdict

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from deepbilevel import Bilevel, GroupStep
from deepbilevel.contract import Rule
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel.rules.momentum import MomentumBilevel
from tests import reference
from tests.models import NETWORKS, Vectors, build, flat_grad, gradient_matrix, images
from tests.test_rule import gradient_matrices

RULES = [
    BilevelRule(),
    BilevelRule(mu=0.3, lam=2.0),
    BilevelRule(normalize=False),
    BilevelRule(weighting="absolute"),
    BilevelRule(weighting="clipped", normalize=False),
    BilevelRule(weighting="cosine"),
    BilevelRule(weighting="cosine", normalize=False),
    ExactBilevel(),
    ExactBilevel(normalize=False, mu=1.0),
    KFoldBilevel(),
    KFoldBilevel(mu=0.3, lam=2.0, normalize=False),
    KFoldBilevel(weighting="cosine"),
    MomentumBilevel(),  # of one group: the first
    MomentumBilevel(mu=0.3, lam=2.0, normalize=False),
    MomentumBilevel(weighting="clipped"),
]


def expected(matrix: np.ndarray, rule: Rule = RULES[0]) -> reference.Solution:
    names = ("mu", "lam", "normalize", "weighting")
    settings = {name: value for name, value in asdict(rule).items() if name in names}
    if isinstance(rule, KFoldBilevel):
        return reference.solve_k_fold(matrix, **settings)
    return reference.solve(matrix, **settings, exact=isinstance(rule, ExactBilevel))


def run_group(model: nn.Module, bilevel: GroupStep, batches, seed: int = 0):
    torch.manual_seed(seed)
    for x, y in batches:
        bilevel.backward(F.cross_entropy(model(x), y))
    return bilevel.fill()


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("num_batches", [2, 3, 8])
@pytest.mark.parametrize("network", NETWORKS)
def test_streaming_equals_the_reference_on_networks(network, num_batches, rule):
    model, batches = build(network), images(num_batches)
    theirs = expected(gradient_matrix(model, batches).numpy(), rule)
    report = run_group(model, GroupStep(model, rule, num_batches=num_batches), batches)
    np.testing.assert_allclose(flat_grad(model), theirs.gradient, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(report.weights, theirs.weights, rtol=1e-9)
    np.testing.assert_allclose(report.raw_weights, theirs.raw_weights, rtol=1e-9)
    assert report.applied == theirs.weights.any()
    assert report.skipped == ()


@pytest.mark.parametrize("rule", [BilevelRule(per_layer=True), ExactBilevel(per_layer=True)], ids=str)
@pytest.mark.parametrize("network", NETWORKS)
def test_per_layer_weights_equal_the_reference_for_each_module(network, rule):
    model, batches = build(network), images(4)
    layers, start = [], 0
    seen: set[int] = set()
    order = {id(p): i for i, p in enumerate(model.parameters())}
    for module in model.modules():  # slices of the flat gradient that belong to one module, in its order
        own = [p for p in module.parameters(recurse=False) if id(p) not in seen]
        seen.update(map(id, own))
        size = sum(p.numel() for p in own)
        if size:
            assert [order[id(p)] for p in own] == sorted(order[id(p)] for p in own)
            layers.append(slice(start, start + size))
            start += size
    theirs = reference.solve_per_layer(
        gradient_matrix(model, batches).numpy(), layers, mu=0.01, lam=1.0, exact=isinstance(rule, ExactBilevel)
    )
    report = run_group(model, GroupStep(model, rule, num_batches=4), batches)
    np.testing.assert_allclose(flat_grad(model), theirs.gradient, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(report.weights, theirs.weights, rtol=1e-8)
    np.testing.assert_allclose(report.weights.abs().sum(0), np.ones(len(layers)))
    assert report.agreement.shape == (3, len(layers))


@given(gradient_matrices())
def test_streaming_equals_the_reference_on_hostile_vectors(matrix):
    vectors = Vectors(torch.from_numpy(matrix))
    bilevel = Bilevel([vectors.parameter], num_batches=len(matrix))
    for loss in vectors.losses():
        bilevel.backward(loss)
    bilevel.fill()
    theirs = expected(matrix)
    scale = np.abs(matrix).max() + 1e-300
    np.testing.assert_allclose(vectors.parameter.grad / scale, theirs.gradient / scale, rtol=1e-9, atol=1e-12)


def test_training_on_float32_stays_within_rounding_of_float64():
    batches = images(8)
    model = build("CifarNet-like")
    run_group(model, Bilevel(model, num_batches=8), batches)
    wide = flat_grad(model)
    narrow_model = build("CifarNet-like").float()
    torch.manual_seed(0)  # dropout then draws the same masks in both precisions
    bilevel = Bilevel(narrow_model, num_batches=8)
    for x, y in batches:
        bilevel.backward(F.cross_entropy(narrow_model(x.float()), y))
    bilevel.fill()
    torch.testing.assert_close(flat_grad(narrow_model).double(), wide, rtol=1e-3, atol=1e-5)


def test_the_report_holds_what_a_plot_of_training_wants():
    gradients = torch.tensor([[3.0, 0.0], [1.0, 0.0], [0.0, 2.0], [-4.0, 3.0]])
    vectors = Vectors(gradients)
    bilevel = Bilevel([vectors.parameter], num_batches=4)
    for i, loss in enumerate(vectors.losses()):
        bilevel.backward(loss + i)
    report = bilevel.fill()
    torch.testing.assert_close(report.agreement, torch.tensor([1.0, 0.0, -0.8]))
    torch.testing.assert_close(report.norms, torch.tensor([3.0, 1.0, 2.0, 5.0]))
    assert report.losses.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert report.finite.tolist() == [True] * 4
    assert not any(t.requires_grad for t in (report.weights, report.raw_weights, report.agreement, report.losses))


def test_the_validation_gradient_is_never_applied():
    vectors = Vectors(torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    bilevel = Bilevel([vectors.parameter], num_batches=2)
    for loss in vectors.losses():
        bilevel.backward(loss)
    bilevel.fill()
    assert vectors.parameter.grad.tolist() == [1.0, 0.0]


def test_disagreement_turns_the_step_around():
    vectors = Vectors(torch.tensor([[1.0, 0.0], [-2.0, 1.0]]))
    bilevel = Bilevel([vectors.parameter], num_batches=2)
    for loss in vectors.losses():
        bilevel.backward(loss)
    assert bilevel.fill().weights.tolist() == [-1.0]
    assert vectors.parameter.grad.tolist() == [2.0, -1.0]


def test_mini_batches_of_one_image_give_per_example_weights():
    model, batches = build("CifarNet-like"), images(5, batch_size=1)
    theirs = expected(gradient_matrix(model, batches).numpy())
    run_group(model, Bilevel(model, num_batches=5), batches)
    np.testing.assert_allclose(flat_grad(model), theirs.gradient, rtol=1e-9, atol=1e-14)


def test_every_forward_pass_updates_batch_norm_with_its_own_statistics():
    model, batches = build("BatchNorm-like"), images(4)
    run_group(model, Bilevel(model, num_batches=4), batches)
    plain = build("BatchNorm-like")
    for x, _ in batches:
        plain(x)
    assert model.block[0].num_batches_tracked == plain.block[0].num_batches_tracked == 8  # the block runs twice
    assert torch.equal(model.block[0].running_mean, plain.block[0].running_mean)


def test_one_call_over_a_group_equals_the_loop():
    batches = images(4)
    loop_model, call_model = build("BatchNorm-like"), build("BatchNorm-like")
    looped = run_group(loop_model, Bilevel(loop_model, num_batches=4), batches)
    called = Bilevel(call_model, num_batches=4).step_over(batches, lambda b: F.cross_entropy(call_model(b[0]), b[1]))
    assert torch.equal(flat_grad(loop_model), flat_grad(call_model))
    assert torch.equal(looped.weights, called.weights)


@pytest.mark.parametrize("source", [list, lambda batches: DataLoader(batches, batch_size=None)])
def test_one_call_takes_the_next_k_mini_batches_of_an_iterator(source):
    model = build("BatchNorm-like")
    bilevel, batches = Bilevel(model, num_batches=3), iter(source(images(6)))
    reports = [bilevel.step_over(batches, lambda b: F.cross_entropy(model(b[0]), b[1])) for _ in range(2)]
    assert next(batches, None) is None
    assert not torch.equal(reports[0].losses, reports[1].losses)


def test_shared_dropout_draws_the_same_masks_for_a_group_and_new_ones_for_the_next():
    dropout = nn.Dropout(0.5)
    bilevel = Bilevel(nn.Linear(2, 2), num_batches=2)

    def masks_of_a_group():
        masks = []
        for _ in range(2):
            with bilevel.shared_dropout():
                masks.append(dropout(torch.ones(64)))
            torch.rand(3)  # what augmentation draws in between must not matter
        bilevel.reset()
        return masks

    first, second = masks_of_a_group(), masks_of_a_group()
    assert torch.equal(*first)
    assert torch.equal(*second)
    assert not torch.equal(first[0], second[0])


def test_shared_dropout_leaves_random_numbers_outside_independent_and_reproducible():
    bilevel = Bilevel(nn.Linear(2, 2), num_batches=2)

    def drawn_outside():
        torch.manual_seed(5)
        numbers = []
        for _ in range(2):
            with bilevel.shared_dropout():
                torch.rand(100)
            numbers.append(torch.rand(1).item())
        bilevel.reset()
        return numbers

    numbers = drawn_outside()
    assert numbers[0] != numbers[1]
    assert numbers == drawn_outside()


def test_one_call_can_share_dropout_or_not():
    model = nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1))
    same = [torch.ones(1, 4)] * 3
    bilevel = Bilevel(model, num_batches=3)
    shared = bilevel.step_over(same, lambda x: model(x).sum(), shared_dropout=True)
    independent = bilevel.step_over(same, lambda x: model(x).sum())
    torch.testing.assert_close(shared.agreement, torch.ones(2))
    assert (independent.agreement < 0.99).all()
