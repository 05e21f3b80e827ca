"""The median of three means, by hand and in general; see also test_elementwise.py."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel import GroupStep
from deepbilevel.rules.median_of_three import MedianOfThree
from tests.rules.elementwise import on_vectors, step
from tests.rules.test_cross_validated import TwoLayers, random_rows

NAN = float("nan")


def test_median_of_three_worked_by_hand():
    # Parts: 1st and 4th, 2nd and 5th, 3rd.
    rows = [[1.0, 0.0], [5.0, -1.0], [100.0, 9.0], [3.0, 0.0], [7.0, -3.0]]
    parameter, report = on_vectors(MedianOfThree(), rows)  # of (2, 0), (6, -2), (100, 9)
    assert parameter.grad.tolist() == [6.0, 0.0]
    assert report.weights.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 6, 1 / 6])


@given(k=st.integers(3, 9), seed=st.integers(0, 2**31))
def test_the_median_lies_between_the_means_of_the_parts_and_owes_nothing_to_one_that_is_wild(k, seed):
    rows = random_rows(k, seed)
    means = np.array([rows[part::3].mean(axis=0) for part in range(3)])
    filled = step(MedianOfThree(), rows)[0].numpy()
    assert (means.min(axis=0) - 1e-12 <= filled).all()
    assert (filled <= means.max(axis=0) + 1e-12).all()
    rows[0::3] *= 1e6
    wild = step(MedianOfThree(), rows)[0].numpy()
    assert (means[1:].min(axis=0) - 1e-12 <= wild).all()
    assert (wild <= means[1:].max(axis=0) + 1e-12).all()


def test_a_median_with_an_empty_part_learns_nothing():
    rows = random_rows(5)
    rows[2, 0] = NAN
    filled, report = step(MedianOfThree(), rows)
    assert torch.equal(filled, torch.zeros(10, dtype=torch.float64))
    assert not report.applied
    assert report.weights.tolist() == [0.0] * 5


def test_it_needs_three_mini_batches():
    with pytest.raises(ValueError, match="num_batches must be at least 3, got 2; rule median-of-three"):
        GroupStep(TwoLayers(), MedianOfThree(), num_batches=2)
