"""The linear system solved exactly: equal to the textbook, and to the closed form where gradients are orthogonal."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deepbilevel import GroupStep, bilevel_weights
from deepbilevel.rules.exact import ExactBilevel, exact_weights
from tests import reference
from tests.models import Vectors
from tests.test_rule import IMPOSSIBLE, gradient_matrices, statistics


@given(gradient_matrices(), st.floats(0.1, 10), st.floats(1e-2, 10))
def test_exact_weights_equal_the_reference(matrix, lam, mu):
    training = torch.from_numpy(matrix[1:])
    # The condition of the system, not the method, decides how many digits are determined.
    condition = np.linalg.cond(matrix[1:] @ matrix[1:].T / lam + mu * np.eye(len(training)))
    assume(condition < 1e9)
    ours = exact_weights(training @ training.T, statistics(matrix)[0], lam=lam, mu=mu)
    theirs = reference.solve(matrix, lam=lam, mu=mu, exact=True).raw_weights
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13 * condition * (1 + np.abs(theirs).max()))


def test_the_step_heeds_lam_and_mu():
    matrix = np.random.RandomState(0).randn(5, 7)
    vectors = Vectors(torch.from_numpy(matrix))
    step = GroupStep([vectors.parameter], ExactBilevel(lam=3.0, mu=0.3), num_batches=5)
    for loss in vectors.losses():
        step.backward(loss)
    report = step.fill()
    theirs = reference.solve(matrix, lam=3.0, mu=0.3, exact=True)
    np.testing.assert_allclose(report.weights, theirs.weights, rtol=1e-9)


@given(arrays(np.float64, 6, elements=st.floats(-10, 10)), st.floats(0.1, 10), st.floats(0.01, 10))
def test_orthogonal_training_gradients_make_the_closed_form_exact(validation, lam, mu):
    lengths = torch.tensor([0.5, 1.0, 2.0, 3.0, 4.0, 5.0], dtype=torch.float64)
    dots, sq_norms = torch.from_numpy(validation) * lengths, lengths.square()
    torch.testing.assert_close(
        exact_weights(torch.diag(sq_norms), dots, lam=lam, mu=mu), bilevel_weights(dots, sq_norms, lam=lam, mu=mu)
    )


def test_exact_weights_reproduce_a_validation_gradient_that_training_gradients_span():
    training = torch.tensor([[1.0, 0.2], [0.3, 1.0]], dtype=torch.float64)
    wanted = torch.tensor([0.7, -0.3], dtype=torch.float64)
    found = exact_weights(training @ training.T, training @ (wanted @ training), mu=0)
    torch.testing.assert_close(found, wanted)


def test_a_singular_system_gets_the_solution_of_least_norm():
    weights = exact_weights(torch.ones(2, 2), torch.ones(2), mu=0)
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_statistics_that_are_not_finite_give_weight_zero_and_leave_the_rest_alone(bad):
    dots, gram = torch.tensor([1.0, bad, 2.0]), torch.eye(3)
    gram[0, 2] = gram[2, 0] = gram[2, 2] = bad
    torch.testing.assert_close(exact_weights(gram, dots, mu=0), torch.tensor([1.0, 0.0, 0.0]))


@IMPOSSIBLE
def test_impossible_settings_are_refused(setting, error, message):
    with pytest.raises(error, match=message):
        exact_weights(torch.eye(2), torch.ones(2), **setting)
    with pytest.raises(error, match=message):
        ExactBilevel(**setting)


@pytest.mark.parametrize("name", ["normalize", "per_layer"])
def test_flags_are_flags(name):
    with pytest.raises(TypeError, match=f"{name} must be True or False, got 'yes'"):
        ExactBilevel(**{name: "yes"})
