"""What predictions say: differences image by image, and the share of wrong labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.advice.evidence import Interval, by_sample, noise_rate, paired_difference


def test_a_difference_worked_by_hand():
    ours, theirs = np.array([1.0, 1.0, 0.0, 0.5]), np.array([0.0, 1.0, 0.0, 0.5])
    found = paired_difference(ours, theirs)
    deviation = np.std([100, 0, 0, 0], ddof=1)
    assert found.value == pytest.approx(25)
    assert found.high - found.value == pytest.approx(1.96 * deviation / 2)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=50))
def test_a_difference_and_its_opposite(pairs):
    ours, theirs = np.array(pairs).T
    found, opposite = paired_difference(ours, theirs), paired_difference(theirs, ours)
    assert found.value == pytest.approx(-opposite.value, abs=1e-9)
    assert found.chance_above_zero == pytest.approx(1 - opposite.chance_above_zero, abs=1e-9)
    assert found.low <= found.value <= found.high


def test_equal_methods_are_no_more_likely_to_be_better_than_worse():
    right = np.array([1.0, 0.0, 1.0])
    assert paired_difference(right, right) == Interval(0, 0, 0)
    assert paired_difference(right, right).chance_above_zero == 0.5
    assert paired_difference(np.ones(1), np.zeros(1)).chance_above_zero == 0.5  # one image says nothing


@pytest.mark.parametrize("runs", [2, 3, 4])
def test_an_interval_and_its_chance_agree(runs):
    by_run = np.linspace(0.0, 0.2, runs)
    found = paired_difference(np.full(100, 0.6), np.full(100, 0.5), by_run)
    assert found.runs == runs
    margin = found.high - found.value
    for place, share in ((-margin, 0.025), (0.0, 0.5), (margin, 0.975)):
        assert Interval(place, place - margin, place + margin, runs).chance_above_zero == pytest.approx(share, abs=1e-3)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    """Of 2,000 draws of 200 images the 95 % interval misses about 100; the bounds are 4 standard deviations away."""
    random = np.random.RandomState(0)
    missed = 0
    for _ in range(2000):
        ours, theirs = random.rand(200) < 0.8, random.rand(200) < 0.7
        found = paired_difference(ours.astype(float), theirs.astype(float))
        missed += not found.low <= 10 <= found.high
    assert 60 < missed < 150


def test_the_interval_covers_what_another_seed_would_change():
    """Runs that differ by more than their samples explain: by samples alone a third of the intervals miss."""
    random = np.random.RandomState(0)
    for num_runs in (2, 3, 4):
        missed = np.zeros(2)
        for _ in range(1000):
            rates = 0.8 + 0.03 * random.randn(num_runs)
            ours = (random.rand(num_runs, 2500) < rates[:, None]).astype(float)
            theirs = (random.rand(num_runs, 2500) < 0.7).astype(float)
            by_run = (ours - theirs).mean(axis=1).tolist()
            for place, runs in enumerate(([], by_run)):
                found = paired_difference(ours.ravel(), theirs.ravel(), runs)
                missed[place] += not found.low <= 10 <= found.high
        assert missed[0] > 300
        assert missed[1] < 80  # of 1,000, five of a hundred; four standard deviations above


def test_runs_that_judge_other_samples_count_once_each_and_those_of_one_sample_are_averaged():
    first, second = np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
    apart = by_sample([first, second], [np.array([0, 1, 2]), np.array([3, 4, 5])])
    assert apart.tolist() == [1, 0, 1, 0, 1, 1]
    assert by_sample([first, second], [np.array([5, 1, 2]), np.array([2, 5, 1])]).tolist() == [0.5, 0.5, 1]


def confident_predictions(truth, classes, rng):
    """Return probabilities of a network that knows the truth, with doubts of its own."""
    scores = rng.randn(len(truth), classes)
    scores[np.arange(len(truth)), truth] += 6
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.4])
@pytest.mark.parametrize("classes", [2, 10])
def test_the_share_of_wrong_labels_is_found(rate, classes):
    rng = np.random.RandomState(1)
    truth = rng.randint(classes, size=5000)
    wrong = rng.rand(5000) < rate
    labels = np.where(wrong, (truth + rng.randint(1, classes, size=5000)) % classes, truth)
    found = noise_rate(confident_predictions(truth, classes, rng), labels)
    # Five standard deviations of the share itself, and a point for what the network gets wrong.
    assert found.value == pytest.approx(100 * rate, abs=1 + 500 * (0.25 / 5000) ** 0.5)
    assert 0 <= found.low <= found.value <= found.high <= 100


def test_a_network_that_knows_nothing_claims_nothing_or_stays_in_bounds():
    labels = np.arange(30) % 3
    found = noise_rate(np.full((30, 3), 1 / 3), labels)
    assert found is None or 0 <= found.low <= found.high <= 100


def test_a_class_without_images_is_never_believed():
    probabilities = np.tile([0.1, 0.1, 0.8], (20, 1))
    found = noise_rate(probabilities, np.arange(20) % 2)
    assert found is not None
    assert found.value == pytest.approx(50)  # of two classes that are equally likely, half are not the first
