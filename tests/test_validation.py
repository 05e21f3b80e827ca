"""Who validates: the first mini-batch, all others, or the first ones of many groups."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import Bilevel, gradients
from tests import reference
from tests.contracts.loop import collect
from tests.models import Vectors, build, flat_grad, images
from tests.test_rule import gradient_matrices
from tests.training.test_packing import same, travel


def run(rows, **settings):
    """Return the report of a group with these gradients and the gradient it left."""
    vectors = Vectors(torch.as_tensor(rows, dtype=torch.float64))
    bilevel = Bilevel([vectors.parameter], num_batches=len(rows), **settings)
    for loss in vectors.losses():
        bilevel.backward(loss)
    return bilevel.fill(), vectors.parameter.grad


def step_through(groups, **settings):
    """Hand groups of given gradients to one rule; return its reports, the gradients it left, and the rule."""
    parameter = nn.Parameter(torch.zeros(groups.shape[-1], dtype=torch.float64))
    bilevel = Bilevel([parameter], num_batches=groups.shape[1], **settings)
    reports, filled = [], []
    for group in groups:
        reports.append(take(bilevel, parameter, group))
        filled.append(parameter.grad.clone())
    return reports, filled, bilevel


def take(bilevel, parameter, group):
    for row in group:
        bilevel.backward(parameter @ torch.as_tensor(row, dtype=torch.float64))
    return bilevel.fill()


def random_groups(num_groups, k=4, seed=0):
    return np.random.RandomState(seed).randn(num_groups, k, 6) + 0.3


def test_k_fold_worked_by_hand():
    # The others' means are (0.5, 1.5), (1, 1.5) and (1.5, 0): <v_i, g_i> / |g_i|^2 is 1 / 4, 1 / 1 and 0 / 9.
    report, gradient = run([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], validation="k-fold", mu=0.0)
    assert report.raw_weights.tolist() == pytest.approx([0.25, 1.0, 0.0])
    assert report.weights.tolist() == pytest.approx([0.2, 0.8, 0.0])
    assert gradient.tolist() == pytest.approx([1.2, 0.0])
    assert report.agreement.tolist() == pytest.approx([1 / 10**0.5, 1 / 3.25**0.5, 0.0])
    assert report.norms.tolist() == [2.0, 1.0, 3.0]


@given(gradient_matrices())
def test_k_fold_equals_the_reference_on_hostile_vectors(matrix):
    _, gradient = run(matrix, validation="k-fold", mu=0.01)
    theirs = reference.solve_k_fold(matrix, lam=1.0, mu=0.01)
    # Where everything cancels out but rounding, no two ways of adding up agree.
    products = matrix @ matrix.T
    if np.abs(theirs.raw_weights).max() > 1e-9 * np.abs(products).max() / (np.abs(np.diag(products)).max() + 0.01):
        scale = np.abs(matrix).max() + 1e-300
        np.testing.assert_allclose(gradient / scale, theirs.gradient / scale, rtol=1e-5, atol=1e-5)


@given(st.permutations(range(5)), st.sampled_from(["agreement", "cosine", "clipped"]))
def test_k_fold_treats_all_mini_batches_alike(order, weighting):
    rows = random_groups(1, k=5)[0]
    (before, gradient), (after, other) = (
        run(each, validation="k-fold", weighting=weighting) for each in (rows, rows[order])
    )
    for name in ("weights", "raw_weights", "agreement", "norms"):
        torch.testing.assert_close(getattr(after, name), getattr(before, name)[order], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 2])
def test_k_fold_leaves_a_bad_mini_batch_out_of_the_others_means(place, bad, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    rows = random_groups(1)[0]
    broken = np.insert(rows, place, rows[1], axis=0)
    broken[place, 3] = bad
    (expected, gradient), (report, filled) = (run(each, validation="k-fold") for each in (rows, broken))
    torch.testing.assert_close(filled, gradient)
    assert report.skipped == (place,)
    assert report.weights[place] == report.agreement[place] == 0
    kept = [i for i in range(5) if i != place]
    torch.testing.assert_close(report.weights[kept], expected.weights)
    torch.testing.assert_close(report.agreement[kept], expected.agreement)


def test_k_fold_discards_a_mini_batch_with_one_bad_layer_as_a_whole():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    bilevel = Bilevel(model, num_batches=3, per_layer=True, validation="k-fold", mu=0.0, normalize=False)
    for first, second in ((1.0, 1.0), (2.0, 1.0), (7.0, math.inf)):
        bilevel.backward(first * model[0].weight.sum() + second * model[1].weight.sum())
    report = bilevel.fill()
    assert report.skipped == (2,)
    assert report.weights.tolist() == [[2.0, 1.0], [0.5, 1.0], [0.0, 0.0]]  # 7 is in nobody's mean


@pytest.mark.parametrize("num_sound", [0, 1])
def test_k_fold_needs_two_sound_mini_batches(num_sound):
    rows = random_groups(1)[0]
    rows[num_sound:, 1] = math.nan
    report, gradient = run(rows, validation="k-fold")
    assert not report.applied
    assert gradient.tolist() == [0.0] * 6


def test_momentum_worked_by_hand():
    groups = np.array([[[4.0, 0.0], [1.0, 1.0]], [[0.0, 4.0], [1.0, -2.0]]])
    reports, filled, bilevel = step_through(groups, validation="momentum", validation_momentum=0.75, mu=0.0)
    average = bilevel.state_dict()["validation_average"]["gradients"][0]
    assert average.tolist() == [3.0, 1.0]  # 0.75 (4, 0) + 0.25 (0, 4)
    assert reports[1].raw_weights.tolist() == pytest.approx([(3 - 2) / 5])  # the first mini-batch alone says -8 / 5
    assert reports[1].agreement.tolist() == pytest.approx([1 / 50**0.5])
    assert reports[1].norms.tolist() == pytest.approx([4.0, 5**0.5])
    assert filled[1].tolist() == [1.0, -2.0]


@pytest.mark.parametrize("settings", [{}, {"solver": "exact"}, {"weighting": "cosine"}], ids=str)
def test_momentum_equals_the_reference_with_the_average_in_the_first_place(settings):
    groups = random_groups(6)
    reports, filled, _ = step_through(groups, validation="momentum", validation_momentum=0.8, **settings)
    average = groups[0, 0]
    for number, group in enumerate(groups):
        average = 0.8 * average + 0.2 * group[0] if number else average
        theirs = reference.solve(
            np.vstack([average, group[1:]]),
            lam=1.0,
            mu=0.01,
            exact="solver" in settings,
            weighting=settings.get("weighting", "agreement"),
        )
        np.testing.assert_allclose(filled[number], theirs.gradient, rtol=1e-9)
        np.testing.assert_allclose(reports[number].weights, theirs.weights, rtol=1e-9)
        cosines = [reference.cosine(average, row) for row in group[1:]]
        np.testing.assert_allclose(reports[number].agreement, cosines, rtol=1e-9)


@given(st.integers(0, 2**31))
def test_momentum_of_zero_is_the_first_mini_batch_alone(seed):
    groups = random_groups(3, seed=seed)
    without = step_through(groups)[1]
    for one, other in zip(without, step_through(groups, validation="momentum", validation_momentum=0)[1], strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 2])
def test_a_bad_validation_gradient_does_not_poison_the_average(place, bad, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    groups = random_groups(4)
    broken = np.insert(groups, place, groups[0], axis=0)
    broken[place, 0, 2] = bad
    expected = step_through(groups, validation="momentum")[1]
    reports, filled, _ = step_through(broken, validation="momentum")
    assert not reports[place].applied
    assert filled.pop(place).tolist() == [0.0] * 6
    for one, other in zip(expected, filled, strict=True):
        assert torch.equal(one, other)


def test_a_bad_training_gradient_leaves_the_average_alone():
    groups = random_groups(3)
    broken = groups.copy()
    broken[1, 2, 0] = math.nan
    averages = [
        step_through(each, validation="momentum")[2].state_dict()["validation_average"]["gradients"]
        for each in (groups, broken)
    ]
    assert torch.equal(averages[0][0], averages[1][0])


def test_a_dropped_group_leaves_no_trace_in_the_average():
    groups = random_groups(3)
    parameter = nn.Parameter(torch.zeros(6, dtype=torch.float64))
    bilevel = Bilevel([parameter], num_batches=4, validation="momentum")
    take(bilevel, parameter, groups[0])
    for row in groups[1][:2]:
        bilevel.backward(parameter @ torch.from_numpy(row))
    bilevel.reset()
    take(bilevel, parameter, groups[2])
    assert torch.equal(parameter.grad, step_through(groups[[0, 2]], validation="momentum")[1][1])


@pytest.mark.parametrize("settings", [{}, {"per_layer": True}, {"solver": "exact"}], ids=str)
def test_momentum_resumed_from_a_checkpoint_equals_unbroken_bit_for_bit(settings):
    model = build("BatchNorm-like").float()
    groups = [[(x.float(), y) for x, y in images(3, seed=seed)] for seed in range(4)]
    bilevel = Bilevel(model, num_batches=3, validation="momentum", **settings)
    for group in groups[:2]:
        collect(model, bilevel, group)
        bilevel.fill()
    state = travel(bilevel.state_dict())
    assert same(state, bilevel.state_dict())
    resumed = Bilevel(model, num_batches=3, **settings)
    resumed.load_state_dict(state)
    filled = []
    for rule in (bilevel, resumed):
        for group in groups[2:]:
            collect(model, rule, group)
            rule.fill()
        filled.append(flat_grad(model))
    assert torch.equal(*filled)
    assert same(resumed.state_dict(), bilevel.state_dict())
    fresh = Bilevel(model, num_batches=3, validation="momentum", **settings)
    for group in groups[2:]:
        collect(model, fresh, group)
        fresh.fill()
    assert not torch.equal(flat_grad(model), filled[0])  # the memory matters


def test_the_average_of_another_model_is_refused_and_nothing_changes():
    state = step_through(random_groups(1), validation="momentum")[2].state_dict()
    other = Bilevel([nn.Parameter(torch.zeros(2))], num_batches=3)
    before = other.state_dict()
    with pytest.raises(ValueError, match=r"validation_average has a tensor of shape \(6,\) for parameter 0"):
        other.load_state_dict(state)
    assert other.state_dict() == before


def test_a_parameter_that_thaws_later_joins_the_average_as_if_it_had_been_zero():
    one, two = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1), requires_grad=False)
    bilevel = Bilevel([one, two], num_batches=2, validation="momentum", validation_momentum=0.5)
    for trainable in (False, True, False):
        two.requires_grad_(trainable)
        for _ in range(2):
            bilevel.backward(2 * one.sum() + 4 * two.sum())
        bilevel.fill()
        found = bilevel.state_dict()["validation_average"]["gradients"]
        assert found[0].tolist() == [2.0]
    assert found[1].tolist() == [1.0]  # 0, then 2, then 1


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"validation": "kfold"}, ValueError, "unknown validation 'kfold'; did you mean 'k-fold'"),
        ({"validation": "k-fold", "solver": "exact"}, ValueError, "has one for all of them; take solver 'diagonal'"),
        ({"validation_momentum": 1.0}, ValueError, r"validation_momentum must lie between 0 and 1, .* got 1\.0"),
        ({"validation_momentum": math.nan}, ValueError, "validation_momentum must lie"),
        ({"validation_momentum": "0.9"}, TypeError, "validation_momentum must be a number, got '0.9'"),
    ],
)
def test_a_validation_without_a_meaning_is_refused(settings, error, message):
    with pytest.raises(error, match=message):
        Bilevel(build("CifarNet-like"), num_batches=4, **settings)
