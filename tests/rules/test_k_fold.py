"""Every mini-batch is validated by the mean of the others: equal to the textbook, and none is treated differently."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import GroupStep, gradients
from deepbilevel.rules.k_fold import KFoldBilevel
from tests import reference
from tests.models import Vectors
from tests.test_rule import IMPOSSIBLE, gradient_matrices


def run(rows, **settings):
    """Return the report of a group with these gradients and the gradient it left."""
    vectors = Vectors(torch.as_tensor(rows, dtype=torch.float64))
    step = GroupStep([vectors.parameter], KFoldBilevel(**settings), num_batches=len(rows))
    for loss in vectors.losses():
        step.backward(loss)
    return step.fill(), vectors.parameter.grad


def random_rows(k):
    return np.random.RandomState(0).randn(k, 6) + 0.3


def test_k_fold_worked_by_hand():
    # The others' means are (0.5, 1.5), (1, 1.5) and (1.5, 0): <v_i, g_i> / |g_i|^2 is 1 / 4, 1 / 1 and 0 / 9.
    report, gradient = run([[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]], mu=0.0)
    assert report.raw_weights.tolist() == pytest.approx([0.25, 1.0, 0.0])
    assert report.weights.tolist() == pytest.approx([0.2, 0.8, 0.0])
    assert gradient.tolist() == pytest.approx([1.2, 0.0])
    assert report.agreement.tolist() == pytest.approx([1 / 10**0.5, 1 / 3.25**0.5, 0.0])
    assert report.norms.tolist() == [2.0, 1.0, 3.0]


@given(gradient_matrices())
def test_k_fold_equals_the_reference_on_hostile_vectors(matrix):
    _, gradient = run(matrix, mu=0.01)
    theirs = reference.solve_k_fold(matrix, lam=1.0, mu=0.01)
    # Where everything cancels out but rounding, no two ways of adding up agree.
    products = matrix @ matrix.T
    if np.abs(theirs.raw_weights).max() > 1e-9 * np.abs(products).max() / (np.abs(np.diag(products)).max() + 0.01):
        scale = np.abs(matrix).max() + 1e-300
        np.testing.assert_allclose(gradient / scale, theirs.gradient / scale, rtol=1e-5, atol=1e-5)


@given(st.permutations(range(5)), st.sampled_from(["agreement", "cosine"]))
def test_all_mini_batches_are_treated_alike(order, weighting):
    rows = random_rows(5)
    (before, gradient), (after, other) = (run(each, weighting=weighting) for each in (rows, rows[order]))
    for name in ("weights", "raw_weights", "agreement", "norms"):
        torch.testing.assert_close(getattr(after, name), getattr(before, name)[order], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 2])
def test_a_bad_mini_batch_is_left_out_of_the_others_means(place, bad, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    rows = random_rows(4)
    broken = np.insert(rows, place, rows[1], axis=0)
    broken[place, 3] = bad
    (expected, gradient), (report, filled) = (run(each) for each in (rows, broken))
    torch.testing.assert_close(filled, gradient)
    assert report.skipped == (place,)
    assert report.weights[place] == report.agreement[place] == 0
    kept = [i for i in range(5) if i != place]
    torch.testing.assert_close(report.weights[kept], expected.weights)
    torch.testing.assert_close(report.agreement[kept], expected.agreement)


def test_a_mini_batch_with_one_bad_layer_is_discarded_as_a_whole():
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    step = GroupStep(model, KFoldBilevel(per_layer=True, mu=0.0, normalize=False), num_batches=3)
    for first, second in ((1.0, 1.0), (2.0, 1.0), (7.0, math.inf)):
        step.backward(first * model[0].weight.sum() + second * model[1].weight.sum())
    report = step.fill()
    assert report.skipped == (2,)
    assert report.weights.tolist() == [[2.0, 1.0], [0.5, 1.0], [0.0, 0.0]]  # 7 is in nobody's mean


@pytest.mark.parametrize("num_sound", [0, 1])
def test_two_sound_mini_batches_are_needed(num_sound):
    rows = random_rows(4)
    rows[num_sound:, 1] = math.nan
    report, gradient = run(rows)
    assert not report.applied
    assert gradient.tolist() == [0.0] * 6


@IMPOSSIBLE
def test_impossible_settings_are_refused(setting, error, message):
    with pytest.raises(error, match=message):
        KFoldBilevel(**setting)


@pytest.mark.parametrize("weighting", ["clipped", "random"])
def test_controls_are_the_first_mini_batchs_alone(weighting):
    with pytest.raises(ValueError, match=f"unknown weighting '{weighting}'; .*There are: agreement, cosine"):
        KFoldBilevel(weighting=weighting)
