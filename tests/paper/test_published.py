"""What the paper prints: that all of it is there, and printed figures that contradict each other are marked."""

from collections import Counter

import pytest

from deepbilevel_paper import EXPERIMENTS
from deepbilevel_paper.published import CLOTHING1M, COMPARISON_40, IMAGENET, PIXEL_PERMUTATION, TABLE_1

ALL = (*TABLE_1, *PIXEL_PERMUTATION, *COMPARISON_40, *IMAGENET, *CLOTHING1M)


@pytest.mark.parametrize(
    ("table", "num_figures"),
    [(TABLE_1, 6 * 10), (PIXEL_PERMUTATION, 2 * 3), (COMPARISON_40, 10 * 2 - 1), (IMAGENET, 4), (CLOTHING1M, 4)],
)
def test_every_printed_number_is_there(table, num_figures):
    assert sum(each.num_figures for each in table) == num_figures
    assert max(Counter((each.row, each.column) for each in table).values()) == 1


@pytest.mark.parametrize(
    ("table", "row", "column", "figures"),
    [
        (TABLE_1, "SGD", "CifarNet, clean", (99.99, 75.68, 24.31)),
        (TABLE_1, "Baseline", "Inception, 50 % noise", (45.43, 73.08, None)),
        (TABLE_1, "a) no L1", "Inception, clean", (79.46, 77.07, 2.39)),
        (TABLE_1, "c) sampling", "CifarNet, 50 % noise", (16.13, 23.93, None)),
        (TABLE_1, "d) dropout", "Inception, 50 % noise", (44.61, 75.71, None)),
        (PIXEL_PERMUTATION, "Bilevel", "Inception, permuted pixels", (34.8, 33.6, 1.2)),
        (COMPARISON_40, "Jiang et al. (MentorNet)", "CIFAR-100", (None, 56.9, None)),
        (COMPARISON_40, "Bilevel + mixup", "CIFAR-10", (None, 89.0, None)),
        (COMPARISON_40, "Dropout, keep 0.3", "CIFAR-100", (None, 50.1, None)),
        (IMAGENET, "Bilevel", "44 % noise", (None, 52.69, None)),
        (CLOTHING1M, "Patrini et al.", "then clean labels", (None, 80.4, None)),
    ],
)
def test_spot_values(table, row, column, figures):
    (found,) = (each for each in table if (each.row, each.column) == (row, column))
    assert (found.train, found.test, found.gap) == figures


def test_a_printed_gap_is_the_difference():
    with_gap = [each for each in ALL if each.gap is not None]
    assert len(with_gap) == 14
    for each in with_gap:
        assert each.gap == pytest.approx(each.train - each.test, abs=0.005)


def test_figures_that_repeat_another_networks_are_doubtful_and_no_others():
    doubtful = [each for each in ALL if each.doubtful]
    assert [(each.row, each.column) for each in doubtful] == [("b) weights per layer", "Inception, 50 % noise")]
    pairs = Counter((each.train, each.test) for each in TABLE_1)
    assert [pair for pair, times in pairs.items() if times > 1] == [(doubtful[0].train, doubtful[0].test)]


def test_networks_and_sources_are_named_where_they_are_not_the_papers_own():
    by_row = {each.row: each for each in COMPARISON_40}
    assert by_row["Azadi et al."].network == "AlexNet"
    assert {row for row, each in by_row.items() if each.network == "ResNet"} == {
        "Reed et al.",
        "Goldberger et al.",
        "Jiang et al. (MentorNet)",
    }
    assert [row for row, each in by_row.items() if each.source is None] == [
        "Zhang et al. (mixup)",
        "SGD",
        "Dropout, keep 0.3",
        "Label smoothing 0.1",
        "Bilevel",
        "Bilevel + mixup",
    ]


def test_every_printed_number_belongs_to_one_experiment():
    shown = [each for experiment in EXPERIMENTS.values() for each in experiment.published]
    assert Counter(shown) == Counter(ALL)
