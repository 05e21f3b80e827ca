"""Noise from a matrix: the frequencies are the given ones, and a bad matrix is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.noise import flip_by_matrix
from tests.contracts.noise import chi_square, clean_labels_of, confusion_of

LOPSIDED = np.array([[0.5, 0.3, 0.2, 0.0], [0.0, 1.0, 0.0, 0.0], [0.1, 0.1, 0.1, 0.7], [0.25, 0.25, 0.25, 0.25]])


def test_labels_have_the_frequencies_of_their_row():
    sizes = np.array([2000, 3000, 4000, 5000])
    counts = confusion_of(flip_by_matrix(clean_labels_of(sizes.tolist()), LOPSIDED, seed=0))
    expected = sizes[:, None] * LOPSIDED
    assert (counts[LOPSIDED == 0] == 0).all()
    # 2 + 0 + 3 + 3 degrees of freedom; 26.1 is passed by chance once in a thousand seeds.
    assert chi_square(counts[LOPSIDED > 0], expected[LOPSIDED > 0]) < 26.1


@given(st.permutations(range(5)), st.integers(0, 99))
def test_a_permutation_of_the_classes_is_carried_out_to_the_letter(order, seed):
    clean_labels = clean_labels_of([7] * 5)
    noisy = flip_by_matrix(clean_labels, np.eye(5)[list(order)], seed=seed)
    np.testing.assert_array_equal(noisy.labels, np.array(order)[clean_labels])


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4).filter(any), min_size=4, max_size=4))
def test_what_has_no_probability_never_happens(weights):
    matrix = np.array(weights) / np.sum(weights, axis=1, keepdims=True)
    assert (confusion_of(flip_by_matrix(clean_labels_of([50] * 4), matrix, seed=0))[matrix == 0] == 0).all()


def test_rows_that_miss_one_by_rounding_are_taken_as_meant():
    matrix = torch.full((1000, 1000), 0.001)  # a float32, which is not quite a thousandth
    assert float(matrix.double().sum(dim=1)[0]) != 1
    noisy = flip_by_matrix(np.repeat(np.arange(1000), 20), matrix, seed=0)
    # 1,000 classes drawn 20 times each; 999 degrees of freedom, 1,143 is passed by chance once in a thousand seeds.
    assert chi_square(np.bincount(noisy.labels, minlength=1000), 20) < 1143


@pytest.mark.parametrize(
    ("row", "lowest", "highest"),
    [([0, 0.4, 0.6, 0], 1, 2), ([0.4, 0.6, 0, 0], 0, 1), ([0.3, 0.3, 0.2, 0.2 - 9e-6], 0, 3)],
)
def test_the_ends_of_the_random_numbers_give_labels_that_are_possible(monkeypatch, row, lowest, highest):
    class Ends:
        def random_sample(self, size):
            return np.array([0.0, np.nextafter(1, 0)])

    monkeypatch.setattr("deepbilevel_lab.noise.flips.random_numbers", lambda _: Ends())
    assert flip_by_matrix([0, 0], [row, *np.eye(4)[1:]], seed=0).labels.tolist() == [lowest, highest]


def test_noise_is_that_of_earlier_versions():
    noisy = flip_by_matrix([0, 1, 2, 3] * 4, LOPSIDED, seed=2018)
    assert noisy.labels.tolist() == [2, 1, 3, 1, 0, 1, 3, 2, 2, 1, 3, 3, 1, 1, 3, 3]


@pytest.mark.parametrize(
    ("matrix", "error", "message"),
    [
        ([0.5, 0.5], ValueError, r"matrix must be square, .* got shape \(2,\)"),
        ([[0.5, 0.5]], ValueError, r"matrix must be square, .* got shape \(1, 2\)"),
        (np.zeros((0, 0)), ValueError, r"matrix must be square, .* got shape \(0, 0\)"),
        ([[1.5, -0.5], [0, 1]], ValueError, r"matrix must hold probabilities, got -0.5 at \[0, 1\]"),
        ([[1, 0], [float("nan"), 1]], ValueError, r"matrix must hold probabilities, got nan at \[1, 0\]"),
        ([[1, 0], [float("inf"), 1]], ValueError, r"matrix must hold probabilities, got inf at \[1, 0\]"),
        ([[1, 0], [0.2, 0.7]], ValueError, "matrix must have rows that sum to 1, row 1 sums to 0.9$"),
        ([[8, 2], [3, 7]], ValueError, "matrix must have rows that sum to 1, row 0 sums to 10$"),
        ([[0.9, 0.4], [0.1, 0.6]], ValueError, "row 0 sums to 1.3; its columns do: pass the transpose"),
        ([[1, 0], [1]], TypeError, "matrix must hold numbers, in rows of equal length"),
        ([["a", "b"], ["c", "d"]], TypeError, "matrix must hold numbers"),
        (None, ValueError, "matrix must be square"),
    ],
    ids=str,
)
def test_a_bad_matrix_is_refused(matrix, error, message):
    with pytest.raises(error, match=message):
        flip_by_matrix([0, 1], matrix, seed=0)


def test_a_label_without_a_row_is_refused():
    with pytest.raises(ValueError, match=r"clean_labels must lie in 0 \.\. num_classes - 1 = 1, got 0 to 2"):
        flip_by_matrix([0, 1, 2], np.eye(2), seed=0)
