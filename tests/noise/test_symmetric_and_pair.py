"""Two other noises of the catalog: drawn over all classes, and always to the next class."""

import numpy as np
import pytest

from deepbilevel_lab.noise import flip_symmetrically, flip_to_next
from tests.contracts.noise import chi_square, clean_labels_of, confusion_of


def test_symmetric_noise_draws_every_class_equally_often_the_old_one_included():
    noisy = flip_symmetrically(clean_labels_of([1000] * 5), 1, num_classes=5, seed=0)
    # 5 x 4 degrees of freedom; 45.3 is passed by chance once in a thousand seeds.
    assert chi_square(confusion_of(noisy), 200) < 45.3


def test_forty_percent_of_other_papers_is_thirty_six_percent_wrong():
    noisy = flip_symmetrically(clean_labels_of([5000] * 10), 0.4, num_classes=10, seed=0)
    # Of the 20,000 labels drawn anew a tenth stays right: 2,000, with a standard deviation of 42.
    assert abs(noisy.flipped.sum() - 18_000) < 4 * 42


def test_symmetric_noise_never_makes_more_labels_wrong_than_it_draws():
    rates = flip_symmetrically(clean_labels_of([40] * 4), 0.5, num_classes=4, seed=0).rates_per_class
    assert (rates <= 0.5).all()
    assert (rates < 0.5).any()


@pytest.mark.parametrize("num_classes", [2, 3, 10])
def test_pair_noise_goes_to_the_next_class_and_from_the_last_to_the_first(num_classes):
    noisy = flip_to_next(clean_labels_of([20] * num_classes), 0.45, num_classes=num_classes, seed=0)
    expected = 11 * np.eye(num_classes) + 9 * np.roll(np.eye(num_classes), 1, axis=1)
    np.testing.assert_array_equal(confusion_of(noisy), expected)


def test_noise_is_that_of_earlier_versions():
    clean_labels = [0, 1, 2, 3] * 4
    symmetric = flip_symmetrically(clean_labels, 0.5, num_classes=4, seed=2018)
    pair = flip_to_next(clean_labels, 0.5, num_classes=4, seed=2018)
    assert symmetric.labels.tolist() == [3, 2, 2, 2, 1, 1, 0, 3, 0, 1, 2, 2, 0, 1, 3, 3]
    assert pair.labels.tolist() == [1, 2, 2, 0, 1, 1, 3, 3, 0, 2, 2, 0, 0, 1, 3, 3]
