"""The controls of the bilevel rule: what stands in for its weights, and that everything else stays as it is."""

from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel import Bilevel
from deepbilevel.rules.bilevel import Weighting
from tests.models import Vectors, build, flat_grad, images
from tests.test_rule import gradient_matrices

CONTROLS = ["absolute", "clipped", "random"]
# With mu = 0 and lam = 1 the raw weights are <g_v, g_i> / |g_i|^2 = 2 / 1, 0 / 4 and -2 / 4.
GRADIENTS = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 2.0], [-1.0, 3**0.5]], dtype=torch.float64)


def run(gradients, **settings):
    """Return the report of a group with these gradients, validation first, and the gradient it left."""
    vectors = Vectors(gradients)
    bilevel = Bilevel([vectors.parameter], num_batches=len(gradients), **settings)
    for loss in vectors.losses():
        bilevel.backward(loss)
    return bilevel.fill(), vectors.parameter.grad


@pytest.mark.parametrize(
    ("weighting", "raw", "weights"),
    [
        ("agreement", [2.0, 0.0, -0.5], [0.8, 0.0, -0.2]),
        ("absolute", [2.0, 0.0, 0.5], [0.8, 0.0, 0.2]),
        ("clipped", [2.0, 0.0, 0.0], [1.0, 0.0, 0.0]),
        ("cosine", [1.0, 0.0, -0.5], [2 / 3, 0.0, -1 / 3]),
    ],
)
def test_examples_worked_by_hand(weighting, raw, weights):
    report, gradient = run(GRADIENTS, mu=0.0, weighting=weighting)
    raw, weights = (torch.tensor(each, dtype=torch.float64) for each in (raw, weights))
    torch.testing.assert_close(report.raw_weights, raw)
    torch.testing.assert_close(report.weights, weights)
    torch.testing.assert_close(gradient, weights @ GRADIENTS[1:])
    _, gradient = run(GRADIENTS, mu=0.0, weighting=weighting, normalize=False)
    torch.testing.assert_close(gradient, raw @ GRADIENTS[1:])


def test_random_weights_are_rectified_gaussians_from_torchs_own_stream():
    torch.manual_seed(8)
    drawn = torch.randn(4).clamp(min=0).double()[1:]  # for the whole group; the first mini-batch has no weight
    assert (drawn > 0).tolist() == [False, True, True]
    torch.manual_seed(8)
    report, gradient = run(GRADIENTS, weighting="random")
    torch.testing.assert_close(report.raw_weights, drawn)
    torch.testing.assert_close(report.weights, drawn / drawn.sum())
    torch.testing.assert_close(gradient, drawn / drawn.sum() @ GRADIENTS[1:])


def test_the_rule_and_its_other_controls_draw_nothing():
    before = torch.get_rng_state()
    for weighting in ("agreement", "absolute", "clipped"):
        run(GRADIENTS, weighting=weighting)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("weighting", CONTROLS)
@given(matrix=gradient_matrices(), per_model=st.booleans())
def test_controls_are_never_negative_and_have_unit_l1_norm_or_are_zero(weighting, matrix, per_model):
    report, gradient = run(torch.from_numpy(matrix), weighting=weighting, normalize=per_model)
    assert bool((report.weights >= 0).all())
    assert bool(torch.isfinite(gradient).all())
    total = report.weights.sum().item()
    assert not per_model or total == 0 or total == pytest.approx(1)


@given(matrix=gradient_matrices())
def test_absolute_and_clipped_follow_from_the_rules_weights(matrix):
    reports = {name: run(torch.from_numpy(matrix), weighting=name)[0] for name in get_args(Weighting)[:3]}
    rule = reports["agreement"].raw_weights
    assert torch.equal(reports["absolute"].raw_weights, rule.abs())
    assert torch.equal(reports["clipped"].raw_weights, rule.clamp(min=0))
    # |w| has the L1 norm of w, so normalised weights differ in their signs only.
    assert torch.equal(reports["absolute"].weights, reports["agreement"].weights.abs())


@given(matrix=gradient_matrices(), seed=st.integers(0, 99))
def test_cosine_weights_do_not_change_with_the_length_of_any_gradient(matrix, seed):
    scales = 2.0 ** torch.randint(-20, 21, (len(matrix), 1), generator=torch.Generator().manual_seed(seed))
    gradients = torch.from_numpy(matrix)
    weights, scaled = (run(each, weighting="cosine")[0].weights for each in (gradients, gradients * scales))
    torch.testing.assert_close(weights, scaled, rtol=1e-9, atol=1e-12)


@given(matrix=gradient_matrices())
def test_cosine_weights_are_the_agreement_that_is_reported_whatever_mu_and_lam(matrix):
    report, _ = run(torch.from_numpy(matrix), weighting="cosine", mu=5.0, lam=0.1)
    assert torch.equal(report.raw_weights, report.agreement)
    assert bool((report.raw_weights.abs() <= 1 + 1e-12).all())


@given(matrix=gradient_matrices(), scale=st.sampled_from([-1e6, 1e-6, 3.0]))
def test_random_weights_do_not_look_at_gradients(matrix, scale):
    reports = []
    for gradients in (matrix, scale * matrix):
        torch.manual_seed(1)
        reports.append(run(torch.from_numpy(gradients), weighting="random")[0])
    assert torch.equal(reports[0].weights, reports[1].weights)


def test_random_weights_have_the_distribution_they_should():
    parameter = torch.nn.Parameter(torch.zeros(1))
    bilevel = Bilevel([parameter], num_batches=5_000, weighting="random")
    weights = torch.cat(
        [bilevel.step_over([1.0] * 5_000, lambda factor: factor * parameter.sum()).raw_weights for _ in range(4)]
    )
    # Half are zero; the mean of max(n, 0) is 1 / sqrt(2 pi) = 0.3989, that of its square 1/2.
    assert (weights == 0).float().mean().item() == pytest.approx(0.5, abs=0.01)
    assert weights.mean().item() == pytest.approx(0.3989, abs=0.01)
    assert weights.square().mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("weighting", CONTROLS)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_mini_batch_that_is_not_finite_has_no_weight(weighting, bad):
    gradients = GRADIENTS.clone()
    gradients[1, 1] = bad
    for seed in range(8):
        torch.manual_seed(seed)
        report, gradient = run(gradients, weighting=weighting)
        assert report.weights[0] == 0
        assert report.skipped == (1,)
        assert bool(torch.isfinite(gradient).all())
    gradients[0, 0] = bad
    assert not run(gradients, weighting=weighting)[0].applied


def test_random_weights_are_drawn_for_every_layer():
    model, batches = build("CifarNet-like"), images(4)
    bilevel = Bilevel(model, num_batches=4, per_layer=True, weighting="random")
    report = bilevel.step_over(batches, lambda batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]))
    assert report.weights.shape[0] == 3
    assert len({tuple(column) for column in report.weights.T.tolist()}) > 1
    assert bool(torch.isfinite(flat_grad(model)).all())


def test_shared_dropout_does_not_share_random_weights():
    model, batches = build("CifarNet-like"), images(8)
    bilevel = Bilevel(model, num_batches=8, weighting="random")
    loss_of = lambda batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
    weights = bilevel.step_over(batches, loss_of, shared_dropout=True).raw_weights
    drawn = weights[weights > 0].tolist()
    assert len(set(drawn)) == len(drawn) > 1


def test_the_weighting_is_in_the_state():
    model = build("CifarNet-like")
    clipped = Bilevel(model, num_batches=4, weighting="clipped")
    state = clipped.state_dict()
    assert clipped.rule.weighting == state["rule"]["weighting"] == "clipped"
    other = Bilevel(model, num_batches=4)
    with pytest.raises(ValueError, match=r"with rule\.weighting='clipped', this step has rule\.weighting='agreement'"):
        other.load_state_dict(state)
    assert other.rule.weighting == other.state_dict()["rule"]["weighting"] == "agreement"


def test_a_weighting_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="unknown weighting 'absolut'; did you mean 'absolute'"):
        Bilevel(build("CifarNet-like"), num_batches=4, weighting="absolut")
