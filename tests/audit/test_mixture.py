"""Scores whose truth is known: are wrong labels found, is the noise rate in its interval, is "cannot say" an answer?"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepbilevel.audit.mixture import judge_scores


def drawn(seed, *, n=3000, rate=0.2, apart=4.0, wrong_std=1.0, classes=5):
    random = np.random.RandomState(seed)
    wrong = random.rand(n) < rate
    scores = np.where(wrong, wrong_std * random.randn(n) - apart, random.randn(n))
    return scores, random.randint(0, classes, n), wrong


def auroc(scores, wrong):
    """Share of pairs in the right order; ties count half."""
    ordered = np.sort(scores[~wrong])
    lower = np.searchsorted(ordered, scores[wrong], "left"), np.searchsorted(ordered, scores[wrong], "right")
    return np.mean(lower) / len(ordered)


@pytest.mark.parametrize(("rate", "apart"), [(0.01, 6.0), (0.03, 5.0), (0.2, 4.0), (0.4, 3.0), (0.7, 4.0)])
def test_the_noise_rate_lies_in_its_interval(rate, apart):
    """A 95 % interval holds the truth in 95 % of the cases; in 20, less than 16 would be a chance of 1 to 3,000."""
    held = 0
    for seed in range(20):
        scores, groups, wrong = drawn(seed, rate=rate, apart=apart)
        p_wrong, found = judge_scores(scores, groups, 5)
        assert found.told_apart
        assert found.low <= found.estimate <= found.high
        assert abs(found.estimate - wrong.mean()) < 0.05
        assert auroc(p_wrong, wrong) > 0.95
        held += found.low <= rate <= found.high
    assert held >= 16


def test_probabilities_are_calibrated():
    drawings = [drawn(seed, n=5000, rate=0.3, apart=3.0) for seed in range(10)]
    p_wrong = np.concatenate([judge_scores(scores, groups, 5)[0] for scores, groups, _ in drawings])
    wrong = np.concatenate([each for _, _, each in drawings])
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        among = (p_wrong >= low) & (p_wrong <= low + 0.2)
        assert abs(wrong[among].mean() - p_wrong[among].mean()) < 0.07


ONE_POPULATION = {
    "normal": lambda random: random.randn(4000),
    "heavy tails": lambda random: random.standard_t(3, 4000),
    "skewed": lambda random: -random.gamma(2, size=4000),
    "very skewed": lambda random: -random.exponential(size=4000),
    "logistic": lambda random: random.logistic(size=4000),
    "overlapping": lambda random: np.where(random.rand(4000) < 0.3, random.randn(4000) - 1, random.randn(4000)),
    "all the same": lambda random: np.zeros(4000),
    "too few": lambda random: random.randn(10),
    "none": lambda random: np.zeros(0),
    "unknown": lambda random: np.full(100, np.nan),
}


@pytest.mark.parametrize("population", ONE_POPULATION.values(), ids=ONE_POPULATION)
def test_what_cannot_be_told_apart_is_not(population):
    for seed in range(3):
        scores = population(np.random.RandomState(seed))
        p_wrong, found = judge_scores(scores, np.zeros(len(scores), dtype=np.int64), 1, wrong_std=1.0)
        assert not found.told_apart
        assert (found.low, found.high) == (0, 1)
        assert np.isnan(p_wrong).all()


@settings(max_examples=25)
@given(seed=st.integers(0, 1000), wrong_std=st.sampled_from([0.3, 1.0, 2.0]), known=st.sampled_from([0.0, 0.8, 1.25]))
def test_a_lower_score_is_never_less_suspicious(seed, wrong_std, known):
    scores, _, _ = drawn(seed, n=1000, apart=6, wrong_std=wrong_std)
    scores = np.r_[scores, -12, -9, 6, 9, 1000]  # beyond the vertex of the log-odds
    p_wrong, found = judge_scores(scores, np.zeros(len(scores), dtype=np.int64), 1, wrong_std=known * wrong_std)
    assert found.told_apart
    ordered = p_wrong[np.argsort(scores)]
    assert (np.diff(ordered) <= 1e-12).all()
    assert ordered[0] > 0.5 > ordered[-1]


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_the_order_of_samples_does_not_matter(seed):
    scores, groups, _ = drawn(0)
    order = np.random.RandomState(seed).permutation(len(scores))
    p_wrong, found = judge_scores(scores, groups, 5)
    moved, again = judge_scores(scores[order], groups[order], 5)
    assert np.array_equal(p_wrong[order], moved)
    assert (found.low, found.high) == (again.low, again.high)


def test_each_large_group_has_its_own_populations_and_a_small_one_those_of_all():
    random = np.random.RandomState(0)
    groups = np.repeat([0, 1, 2], [4000, 4000, 4])
    shift = np.array([0.0, 1.5, 0.0])[groups]
    wrong = random.rand(len(groups)) < np.array([0.1, 0.4, 0.5])[groups]
    scores = np.where(wrong, -6, 0) + shift + random.randn(len(groups))
    p_wrong, _ = judge_scores(scores, groups, 4)  # nobody is in the fourth
    for group, share in ((0, 0.1), (1, 0.4)):
        assert abs(p_wrong[groups == group].mean() - share) < 0.03
        assert ((p_wrong > 0.5) == wrong)[groups == group].mean() > 0.97
    assert np.isfinite(p_wrong[groups == 2]).all()


def test_a_known_width_widens_the_interval_where_the_two_overlap():
    scores, groups, _ = drawn(0, rate=0.4, apart=2.6)
    _, alone = judge_scores(scores, groups, 5)
    _, both = judge_scores(scores, groups, 5, wrong_std=1.4)
    assert both.low <= alone.low + 1e-12
    assert both.high > alone.high


def test_a_score_nobody_knows_is_no_matter_to_the_others():
    scores, groups, _ = drawn(0)
    p_wrong, found = judge_scores(scores, groups, 5)
    more, again = judge_scores(np.r_[np.nan, scores, np.nan], np.r_[0, groups, 1], 5)
    assert np.array_equal(more[1:-1], p_wrong)
    assert np.isnan(more[[0, -1]]).all()
    assert found == again
