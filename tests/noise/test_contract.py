"""What holds for every noise, whatever it does to the labels."""

import numpy as np
import pytest
import torch
from hypothesis import given

from deepbilevel_lab.noise import CATALOG
from tests.contracts.noise import (
    NOISES,
    assert_consistent,
    clean_labels_of,
    every_noise,
    rates,
    seeds,
    sizes_of_classes,
)


def test_the_whole_catalog_is_under_contract():
    assert set(CATALOG) <= set(NOISES)
    assert all(NOISES[kind].flip is flip for kind, flip in CATALOG.items())


@every_noise
@given(sizes=sizes_of_classes, rate=rates, seed=seeds)
def test_labels_are_classes_and_the_mask_and_the_counts_are_true(noise, sizes, rate, seed):
    clean_labels = clean_labels_of(sizes)
    noisy = noise.flip(clean_labels, rate, num_classes=len(sizes), seed=seed)
    assert_consistent(noisy, clean_labels, len(sizes))
    np.testing.assert_array_equal(clean_labels, clean_labels_of(sizes))  # the input is as it was
    if noise.exact_per_class:
        wrong = [noisy.flipped[clean_labels == label].sum() for label in range(len(sizes))]
        assert wrong == [int(rate * size) for size in sizes]
    if noise.exact_in_all:
        assert noisy.flipped.sum() == int(rate * sum(sizes))


@every_noise
@given(sizes=sizes_of_classes, seed=seeds)
def test_rate_zero_gives_the_clean_labels(noise, sizes, seed):
    clean_labels = clean_labels_of(sizes)
    noisy = noise.flip(clean_labels, 0, num_classes=len(sizes), seed=seed)
    np.testing.assert_array_equal(noisy.labels, clean_labels)
    noisy.labels[:] = 0  # what is handed out is a copy
    np.testing.assert_array_equal(clean_labels, clean_labels_of(sizes))


@pytest.mark.parametrize("kind", [kind for kind, noise in NOISES.items() if noise.nested])
@given(sizes=sizes_of_classes, low=rates, high=rates, seed=seeds)
def test_a_higher_rate_keeps_the_labels_a_lower_one_made_wrong(kind, sizes, low, high, seed):
    noise = NOISES[kind]
    low, high = sorted((low, high))
    clean_labels = clean_labels_of(sizes)
    fewer, more = (noise.flip(clean_labels, rate, num_classes=len(sizes), seed=seed) for rate in (low, high))
    np.testing.assert_array_equal(more.labels[fewer.flipped], fewer.labels[fewer.flipped])


@every_noise
@pytest.mark.parametrize("rate", [0.1, 0.4, 0.9])
@pytest.mark.parametrize("num_classes", [2, 10])
def test_the_realised_rate_is_the_expected_one(noise, rate, num_classes):
    num_images = 1000 * num_classes
    noisy = noise.flip(clean_labels_of([1000] * num_classes), rate, num_classes=num_classes, seed=7)
    # Four standard deviations of labels that are wrong independently of each other: the noises vary less, or as much.
    expected = noise.expected_rate(rate, num_classes)
    assert abs(noisy.rate - expected) < 4 * (expected * (1 - expected) / num_images) ** 0.5


@every_noise
def test_the_same_seed_gives_the_same_labels_and_another_seed_others(noise):
    clean_labels = clean_labels_of([50, 50, 50])
    made = [noise.flip(clean_labels, 0.4, num_classes=3, seed=seed).labels.tobytes() for seed in [*range(10), 0]]
    assert made[0] == made[-1]
    assert len(set(made)) == 10


@every_noise
def test_global_random_numbers_are_left_alone(noise):
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    noise.flip(clean_labels_of([20, 20]), 0.5, num_classes=2, seed=1)
    np.testing.assert_array_equal(np.random.get_state()[1], before[0])
    assert torch.equal(torch.get_rng_state(), before[1])


@every_noise
@pytest.mark.parametrize(
    "convert",
    [list, tuple, np.uint8, np.int32, torch.from_numpy],
    ids=["list", "tuple", "uint8", "int32", "tensor"],
)
def test_labels_of_any_whole_number_form_are_flipped_alike(noise, convert):
    clean_labels = clean_labels_of([10, 20, 30])
    expected = noise.flip(clean_labels, 0.5, num_classes=3, seed=0)
    noisy = noise.flip(convert(clean_labels), 0.5, num_classes=3, seed=0)
    np.testing.assert_array_equal(noisy.labels, expected.labels)


every_kind = pytest.mark.parametrize("flip", CATALOG.values(), ids=CATALOG)


@every_kind
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rate": -0.1}, ValueError, "rate must lie between 0 and 1, got -0.1$"),
        ({"rate": 1.5}, ValueError, "rate must lie between 0 and 1, got 1.5; for 1.5 % pass 0.015"),
        ({"rate": 40}, ValueError, "rate must lie between 0 and 1, got 40; for 40 % pass 0.4"),
        ({"rate": float("nan")}, ValueError, "rate must lie between 0 and 1, got nan$"),
        ({"rate": "0.4"}, TypeError, "rate must be a number between 0 and 1, got '0.4'"),
        ({"num_classes": 1, "clean_labels": [0, 0]}, ValueError, "num_classes must be at least 2 to .*, got 1"),
        ({"num_classes": 0, "clean_labels": []}, ValueError, "num_classes must be at least 1, got 0"),
        ({"num_classes": 2.0}, TypeError, "num_classes must be a whole number, got 2.0"),
        ({"num_classes": True}, TypeError, "num_classes must be a whole number, got True"),
        ({"clean_labels": [0, 1, 2]}, ValueError, "clean_labels must lie in 0 .. num_classes - 1 = 1, got 0 to 2"),
        ({"clean_labels": [-1, 1]}, ValueError, "clean_labels must lie in .* = 1, got -1 to 1; number the classes"),
        ({"clean_labels": np.array([0, 2**64 - 1], np.uint64)}, ValueError, "got 0 to 18446744073709551615"),
        ({"clean_labels": [0.0, 1.0]}, TypeError, "clean_labels must be one class number per image, .* of float64"),
        ({"clean_labels": [True, False]}, TypeError, "clean_labels must be one class number per image, .* of bool"),
        ({"clean_labels": ["cat", "dog"]}, TypeError, "clean_labels must be one class number per image"),
        ({"clean_labels": [[0, 1], [1, 0]]}, TypeError, r"clean_labels must be .* got shape \(2, 2\)"),
        ({"clean_labels": [[0], [1, 0]]}, TypeError, "clean_labels must be one class number per image"),
        ({"clean_labels": 3}, TypeError, r"clean_labels must be one class number per image, got shape \(\)"),
        ({"seed": None}, TypeError, "seed must be a whole number, got None"),
        ({"seed": 0.5}, TypeError, "seed must be a whole number, got 0.5"),
        ({"seed": -1}, ValueError, r"seed must lie between 0 and 2\*\*32 - 1, got -1"),
        ({"seed": 2**32}, ValueError, r"seed must lie between 0 and 2\*\*32 - 1, got 4294967296"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_by_name(flip, changes, error, message):
    with pytest.raises(error, match=message):
        flip(**{"clean_labels": [0, 1], "rate": 0.5, "num_classes": 2, "seed": 0, **changes})


@every_kind
def test_one_class_can_have_no_noise_but_rate_zero(flip):
    assert flip([0, 0], 0, num_classes=1, seed=0).labels.tolist() == [0, 0]
