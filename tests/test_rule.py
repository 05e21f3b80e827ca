"""The rule alone: numbers in, weights out."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deepbilevel import bilevel_weights
from deepbilevel.rule import l1_divisor
from tests import reference

SCALES = st.sampled_from([2.0**-50, 2.0**-20, 1.0, 2.0**20, 2.0**50])


@st.composite
def gradient_matrices(draw):
    """Gradients of k mini-batches, hostile ones among them: zero, repeated, opposed, huge, tiny, low rank.

    They are whole numbers times a power of two, so inner products are exact in whatever order a machine adds up. Of
    those that cancel out it would otherwise decide the sign, and with it the whole step.
    """
    k, d = draw(st.integers(2, 9)), draw(st.integers(1, 6))
    matrix = draw(arrays(np.float64, (k, d), elements=st.integers(-1024, 1024).map(lambda x: x / 1024)))
    for row in draw(st.lists(st.integers(0, k - 1), max_size=2)):
        matrix[row] = draw(st.sampled_from([0, 1, -1])) * matrix[0]
    return matrix * draw(SCALES)


def statistics(matrix: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    training = torch.from_numpy(matrix[1:])
    return training @ torch.from_numpy(matrix[0]), training.square().sum(1)


def normalized(weights: torch.Tensor) -> torch.Tensor:
    return weights / l1_divisor(weights)


@given(gradient_matrices(), st.floats(0.01, 100), st.floats(1e-6, 100))
def test_diagonal_weights_equal_the_reference(matrix, lam, mu):
    ours = bilevel_weights(*statistics(matrix), lam=lam, mu=mu)
    np.testing.assert_allclose(ours, reference.solve(matrix, lam=lam, mu=mu).raw_weights, rtol=1e-12, atol=0)


@given(gradient_matrices(), SCALES)
def test_weights_have_unit_l1_norm_or_are_all_zero(matrix, mu):
    total = normalized(bilevel_weights(*statistics(matrix), mu=mu)).abs().sum().item()
    assert total == 0 or math.isclose(total, 1, rel_tol=1e-12)


@given(gradient_matrices())
def test_each_weight_has_the_sign_of_its_dot_product(matrix):
    dots, sq_norms = statistics(matrix)
    assert torch.equal(bilevel_weights(dots, sq_norms).sign(), dots.sign())


@given(gradient_matrices(), SCALES)
def test_scaling_the_validation_gradient_changes_nothing(matrix, scale):
    dots, sq_norms = statistics(matrix)
    torch.testing.assert_close(
        normalized(bilevel_weights(dots * scale, sq_norms)), normalized(bilevel_weights(dots, sq_norms))
    )


@given(gradient_matrices(), SCALES)
def test_without_mu_scaling_every_gradient_changes_nothing(matrix, scale):
    before = normalized(bilevel_weights(*statistics(matrix), mu=0))
    torch.testing.assert_close(normalized(bilevel_weights(*statistics(matrix * scale), mu=0)), before)


@given(gradient_matrices(), st.randoms(use_true_random=False))
def test_permuting_training_mini_batches_permutes_the_weights(matrix, random):
    order = list(range(len(matrix) - 1))
    random.shuffle(order)
    dots, sq_norms = statistics(matrix)
    assert torch.equal(bilevel_weights(dots[order], sq_norms[order]), bilevel_weights(dots, sq_norms)[order])


@given(gradient_matrices())
def test_two_mini_batches_give_plus_one_zero_or_minus_one(matrix):
    weight = normalized(bilevel_weights(*statistics(matrix[:2])))
    assert weight.item() in (-1.0, 0.0, 1.0)
    assert weight.item() == np.sign(matrix[0] @ matrix[1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_statistics_that_are_not_finite_give_weight_zero_and_leave_the_rest_alone(bad):
    dots, sq_norms = torch.tensor([1.0, bad, 2.0]), torch.tensor([1.0, 1.0, bad])
    assert bilevel_weights(dots, sq_norms, mu=0).tolist() == [1.0, 0.0, 0.0]


def test_the_divisor_of_zero_or_overflowing_weights_zeroes_the_step():
    assert l1_divisor(torch.zeros(3)).item() == math.inf
    assert l1_divisor(torch.full((3,), 3e38)).item() == math.inf


IMPOSSIBLE = pytest.mark.parametrize(
    ("setting", "error", "message"),
    [
        ({"lam": 0.0}, ValueError, r"lam must be positive .* got 0\.0; the paper uses lam=1\.0"),
        ({"lam": -1.0}, ValueError, "lam must be positive"),
        ({"lam": math.nan}, ValueError, "lam must be positive"),
        ({"mu": -0.1}, ValueError, r"mu must be finite and not negative, got -0\.1; the paper uses mu=0\.01"),
        ({"mu": math.inf}, ValueError, "mu must be finite"),
        ({"mu": "0.01"}, TypeError, "mu must be a number, got '0.01'"),
        ({"lam": True}, TypeError, "lam must be a number, got True"),
    ],
)


@IMPOSSIBLE
def test_impossible_settings_are_refused(setting, error, message):
    with pytest.raises(error, match=message):
        bilevel_weights(torch.ones(2), torch.ones(2), **setting)
