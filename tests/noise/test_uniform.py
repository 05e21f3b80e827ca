"""Uniform noise: its amount is exact and its direction is any other class."""

import numpy as np

from deepbilevel_lab.noise import flip_uniformly
from tests.contracts.noise import chi_square, clean_labels_of, confusion_of


def test_at_rate_one_no_label_is_right():
    assert flip_uniformly(clean_labels_of([10, 20, 30]), 1, num_classes=3, seed=0).flipped.all()


def test_a_wrong_label_is_each_of_the_other_classes_equally_often():
    noisy = flip_uniformly(clean_labels_of([1000] * 5), 0.8, num_classes=5, seed=0)
    others = confusion_of(noisy)[~np.eye(5, dtype=bool)]
    # 5 x 3 degrees of freedom; 37.7 is passed by chance once in a thousand seeds.
    assert chi_square(others, 200) < 37.7


def test_every_image_of_a_class_is_flipped_equally_often():
    clean_labels = clean_labels_of([8, 8])
    flips = sum(flip_uniformly(clean_labels, 0.5, num_classes=2, seed=seed).flipped.astype(int) for seed in range(400))
    assert (np.abs(flips - 200) < 4 * 10).all()  # 10 is the standard deviation of 400 fair coins


def test_a_class_that_has_no_image_can_still_be_flipped_to():
    assert 2 in flip_uniformly(clean_labels_of([20, 20]), 0.5, num_classes=3, seed=0).labels


def test_noise_is_that_of_earlier_versions():
    noisy = flip_uniformly([0, 1, 2, 3] * 4, 0.5, num_classes=4, seed=2018)
    assert noisy.labels.tolist() == [3, 0, 2, 1, 1, 1, 1, 3, 0, 0, 2, 0, 0, 1, 3, 3]


def test_ninety_percent_of_ten_classes_is_a_completely_random_labelling():
    noisy = flip_uniformly(clean_labels_of([2000] * 10), 0.9, num_classes=10, seed=0)
    # 10 x 9 degrees of freedom, less those of the exact diagonal; 137.2 is passed by chance once in a thousand seeds.
    assert chi_square(confusion_of(noisy), 200) < 137.2
