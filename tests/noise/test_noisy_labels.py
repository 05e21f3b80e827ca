"""What noisy labels say about themselves."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from deepbilevel_lab.noise import NoisyLabels, flip_uniformly


def test_rates_are_counted_by_the_true_class():
    noisy = NoisyLabels(labels=[0, 0, 0, 0, 1, 1], clean_labels=[0, 0, 1, 1, 1, 1], num_classes=3)
    np.testing.assert_array_equal(noisy.rates_per_class, [0, 0.5, np.nan])
    assert noisy.rate == 1 / 3
    assert len(noisy) == 6


def test_without_labels_there_is_no_rate_and_no_warning():
    noisy = NoisyLabels(labels=np.zeros(0, int), clean_labels=np.zeros(0, int), num_classes=2)
    assert np.isnan(noisy.rate)
    assert np.isnan(noisy.rates_per_class).all()
    assert noisy.describe() == "no labels"


@pytest.mark.parametrize(
    ("noisy", "line"),
    [
        (
            NoisyLabels([0, 1, 1, 1], [0, 0, 1, 1], 3),
            "25.0 % of 4 labels are wrong; by class 0: 50.0 %, 1: 0.0 %, 2: no images",
        ),
        (
            NoisyLabels([5, 5, 6, 0], [5, 5, 6, 6], 100),
            "25.0 % of 4 labels are wrong; by class from 0.0 % (class 5) to 50.0 % (class 6)",
        ),
        (
            flip_uniformly(np.arange(1000) % 2, 0.123, num_classes=2, seed=0),
            "12.2 % of 1,000 labels are wrong; by class 0: 12.2 %, 1: 12.2 %",
        ),
    ],
    ids=["few classes", "many classes", "flipped"],
)
def test_the_report_is_one_line(noisy, line):
    assert noisy.describe() == line


def test_labels_are_copies_and_fields_are_fixed():
    labels = np.array([0, 1])
    noisy = NoisyLabels(labels, labels, 2)
    labels[:] = 1
    assert noisy.labels.tolist() == noisy.clean_labels.tolist() == [0, 1]
    assert not np.shares_memory(noisy.labels, noisy.clean_labels)
    with pytest.raises(FrozenInstanceError):
        noisy.labels = labels


@pytest.mark.parametrize(
    ("labels", "clean_labels", "message"),
    [
        ([0, 2], [0, 1], "^labels must lie in 0 .. num_classes - 1 = 1, got 0 to 2"),
        ([0, 1], [0, 2], "clean_labels must lie in 0 .. num_classes - 1 = 1, got 0 to 2"),
        ([0, 1, 1], [0, 1], "labels and clean_labels must belong to the same images, got 3 and 2"),
    ],
)
def test_impossible_labels_are_refused(labels, clean_labels, message):
    with pytest.raises(ValueError, match=message):
        NoisyLabels(labels, clean_labels, 2)
