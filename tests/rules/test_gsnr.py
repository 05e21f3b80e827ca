"""GSNR weighting: what it does to signal and noise, by hand and in general; see also test_elementwise.py."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel.rules.gsnr import Gsnr
from tests.rules.elementwise import on_vectors, step
from tests.rules.test_cross_validated import random_rows


def test_gsnr_worked_by_hand():
    # Ratios 4 / 1, 9 / 9 and 1 / 4, their mean 1.75: factors 2.29, 0.57 and 0.14.
    parameter, report = on_vectors(Gsnr(), [[1.0, 0.0, -1.0], [3.0, 6.0, 3.0]])
    assert parameter.grad.tolist() == pytest.approx([2.0, 3 / 1.75, 0.25 / 1.75])
    assert report.shared.item() == pytest.approx((1 + 1 / 1.75 + 0.25 / 1.75) / 3)
    parameter, _ = on_vectors(Gsnr(floor=0.5), [[1.0, 0.0, -1.0], [3.0, 6.0, 3.0]])
    assert parameter.grad.tolist() == pytest.approx([2.0, 3 / 1.75, 0.5])


@given(k=st.integers(2, 7), seed=st.integers(0, 2**31), floor=st.floats(0, 1))
def test_the_step_is_confined_between_the_floor_and_the_mean(k, seed, floor):
    rows = random_rows(k, seed)
    mean, filled = rows.mean(axis=0), step(Gsnr(floor=floor), rows)[0].numpy()
    assert (np.abs(filled) >= floor * np.abs(mean) * (1 - 1e-9)).all()
    assert (np.abs(filled) <= np.abs(mean) * (1 + 1e-9)).all()
    assert (np.sign(filled) * np.sign(mean) >= 0).all()


def test_a_parameter_without_noise_gets_all_of_its_mean_and_the_others_their_own_comparison():
    rows = [[1.0, 0.0, 5.0, 0.0], [3.0, 6.0, 5.0, 0.0]]  # ratios 4, 1, infinite and none
    parameter, _ = on_vectors(Gsnr(), rows)
    assert parameter.grad.tolist() == pytest.approx([2.0, 3 * 1 / (5 / 3), 5.0, 0.0])


def test_a_small_variance_on_top_of_a_large_mean_is_kept():
    noise = np.random.RandomState(0).randn(8, 10)
    exact = step(Gsnr(), 1000 + noise)[0]
    # In float32 the squares, a million, would have swallowed a variance of one half in a thousand.
    rough = step(Gsnr(), 1000 + noise, dtype=torch.float32)[0]
    torch.testing.assert_close(rough.double(), exact, rtol=2e-3, atol=0)


def test_a_floor_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"floor must lie in 0 \.\. 1, got nan; its authors"):
        Gsnr(floor=float("nan"))
