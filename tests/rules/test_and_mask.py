"""The AND-mask: what it does to signs that agree, by hand and in general; see also test_elementwise.py."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel import GroupStep
from deepbilevel.rules.and_mask import AndMask
from tests.rules.elementwise import on_vectors, step
from tests.rules.test_cross_validated import TwoLayers, random_rows


def test_and_mask_worked_by_hand():
    rows = [[1.0, 1.0, 1.0, 0.0], [2.0, -1.0, 2.0, 0.0], [3.0, 6.0, 3.0, 2.0], [4.0, 2.0, -2.0, 2.0]]
    parameter, report = on_vectors(AndMask(), rows)  # sums of signs 4, 2, 2, 2 of 4
    assert parameter.grad.tolist() == [2.5, 2.0, 1.0, 1.0]
    assert report.shared.item() == 1
    parameter, report = on_vectors(AndMask(threshold=0.6), rows)
    assert parameter.grad.tolist() == [2.5, 0.0, 0.0, 0.0]
    assert report.shared.item() == 0.25
    assert report.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize(("threshold", "k", "num_agreeing"), [(0.6, 5, 4), (0.6, 25, 20), (0.28, 25, 16)])
def test_a_share_of_signs_that_equals_the_threshold_is_enough_in_any_precision(threshold, k, num_agreeing):
    rows = np.ones((k, 10))
    rows[num_agreeing:] = -1  # |mean sign| is the threshold itself
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert step(AndMask(threshold=threshold), rows, dtype=dtype)[1].shared.item() == 1
        assert step(AndMask(threshold=threshold + 0.01), rows, dtype=dtype)[1].shared.item() == 0


@given(k=st.integers(2, 7), seed=st.integers(0, 2**31))
def test_it_is_plain_averaging_where_all_signs_agree(k, seed):
    rows = np.abs(random_rows(k, seed)) * np.sign(np.linspace(-2, 2, 10))
    filled, report = step(AndMask(threshold=1.0), rows)
    np.testing.assert_allclose(filled, rows.mean(axis=0), rtol=1e-12)
    assert report.shared.item() == 1


@pytest.mark.parametrize(
    ("threshold", "error", "message"),
    [
        (1.1, ValueError, r"threshold must lie in 0 .. 1, got 1\.1; 1 requires"),
        ("a", TypeError, "threshold must be a number, got 'a'"),
    ],
)
def test_a_threshold_that_cannot_be_is_refused(threshold, error, message):
    with pytest.raises(error, match=message):
        AndMask(threshold=threshold)


def test_it_needs_two_mini_batches():
    with pytest.raises(ValueError, match="num_batches must be at least 2, got 1; rule and-mask"):
        GroupStep(TwoLayers(), AndMask(), num_batches=1)
