"""Label noise whose amount is exact and whose direction is uniform."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel.noise import flip_uniformly


def clean_labels_of(sizes: list[int], seed: int = 0) -> np.ndarray:
    return np.random.RandomState(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.floats(0, 1), st.integers(0, 99))
def test_every_class_loses_exactly_its_share_and_no_label_flips_to_itself(sizes, rate, seed):
    clean_labels = clean_labels_of(sizes)
    noisy = flip_uniformly(clean_labels, rate, num_classes=len(sizes), seed=seed)
    for label, size in enumerate(sizes):
        assert noisy.flipped[clean_labels == label].sum() == int(rate * size)
    np.testing.assert_array_equal(noisy.flipped, noisy.labels != clean_labels)
    assert np.isin(noisy.labels, np.arange(len(sizes))).all()


def test_rate_zero_leaves_all_labels_and_rate_one_leaves_none():
    clean_labels = clean_labels_of([10, 20, 30])
    np.testing.assert_array_equal(flip_uniformly(clean_labels, 0, num_classes=3, seed=0).labels, clean_labels)
    assert (flip_uniformly(clean_labels, 1, num_classes=3, seed=0).labels != clean_labels).all()


def test_a_wrong_label_is_each_of_the_other_classes_equally_often():
    clean_labels = clean_labels_of([1000] * 5)
    noisy = flip_uniformly(clean_labels, 0.8, num_classes=5, seed=0)
    flips = np.zeros((5, 5))
    np.add.at(flips, (clean_labels[noisy.flipped], noisy.labels[noisy.flipped]), 1)
    assert (np.diag(flips) == 0).all()
    others = flips[~np.eye(5, dtype=bool)]
    # Chi-square with 5 x 3 degrees of freedom; 37.7 is passed by chance once in a thousand seeds.
    assert ((others - 200) ** 2 / 200).sum() < 37.7


def test_every_image_of_a_class_is_flipped_equally_often():
    clean_labels = clean_labels_of([8, 8])
    flips = sum(flip_uniformly(clean_labels, 0.5, num_classes=2, seed=seed).flipped.astype(int) for seed in range(400))
    assert (np.abs(flips - 200) < 4 * 10).all()  # 10 is the standard deviation of 400 fair coins


def test_a_class_that_has_no_image_can_still_be_flipped_to():
    assert 2 in flip_uniformly(clean_labels_of([20, 20]), 0.5, num_classes=3, seed=0).labels


def test_noise_is_that_of_earlier_versions():
    clean_labels = np.array([0, 1, 2, 3] * 4)
    noisy = flip_uniformly(clean_labels, 0.5, num_classes=4, seed=2018)
    assert noisy.labels.tolist() == [3, 0, 2, 1, 1, 1, 1, 3, 0, 0, 2, 0, 0, 1, 3, 3]
    assert noisy.labels.dtype == np.int64


def test_the_seed_decides_who_is_flipped():
    clean_labels = clean_labels_of([50, 50])
    labels = {flip_uniformly(clean_labels, 0.4, num_classes=2, seed=seed).labels.tobytes() for seed in range(10)}
    assert len(labels) == 10


def test_clean_labels_and_the_global_random_numbers_are_left_alone():
    clean_labels = clean_labels_of([10, 10])
    before = clean_labels.copy()
    np.random.seed(0)
    expected = np.random.random_sample()
    np.random.seed(0)
    flip_uniformly(clean_labels, 0.5, num_classes=2, seed=1)
    assert np.random.random_sample() == expected
    np.testing.assert_array_equal(clean_labels, before)


@pytest.mark.parametrize("convert", [list, tuple, np.uint8, np.int32], ids=["list", "tuple", "uint8", "int32"])
def test_labels_of_any_whole_number_form_are_flipped_alike(convert):
    clean_labels = clean_labels_of([10, 20, 30])
    expected = flip_uniformly(clean_labels, 0.5, num_classes=3, seed=0)
    noisy = flip_uniformly(convert(clean_labels), 0.5, num_classes=3, seed=0)
    np.testing.assert_array_equal(noisy.labels, expected.labels)
    np.testing.assert_array_equal(noisy.flipped, expected.flipped)


@pytest.mark.parametrize(
    ("labels", "rate", "num_classes", "error", "message"),
    [
        ([0, 1], -0.1, 2, ValueError, "rate must lie between 0 and 1, got -0.1"),
        ([0, 1], 1.5, 2, ValueError, "rate must lie between 0 and 1, got 1.5"),
        ([0, 1], 40, 2, ValueError, "rate must lie between 0 and 1, got 40"),
        ([0, 1], float("nan"), 2, ValueError, "rate must lie between 0 and 1, got nan"),
        ([0, 0], 0.5, 1, ValueError, "num_classes must be at least 2 to flip labels, got 1"),
        ([0, 1, 2], 0.5, 2, ValueError, "clean_labels must lie in 0 .. num_classes - 1 = 1, got 0 to 2"),
        ([-1, 1], 0.5, 2, ValueError, "clean_labels must lie in 0 .. num_classes - 1 = 1, got -1 to 1"),
        ([0.0, 1.0], 0.5, 2, TypeError, r"clean_labels must be one class number per image, .* of float64"),
        ([[0, 1], [1, 0]], 0.5, 2, TypeError, r"clean_labels must be one class number .* got shape \(2, 2\)"),
    ],
)
def test_wrong_arguments_are_refused_by_name(labels, rate, num_classes, error, message):
    with pytest.raises(error, match=message):
        flip_uniformly(np.array(labels), rate, num_classes=num_classes, seed=0)
