"""Every mistake is reported when the sampler is built, with the argument, the value and what to do."""

import numpy as np
import pytest
import torch

from deepbilevel import MatchedGroups

GOOD = {"labels": [0, 1] * 8, "num_batches": 2, "batch_size": 2, "seed": 0}

WRONG_SETTINGS = [
    ({"num_batches": 1}, ValueError, "num_batches must be at least 2, got 1"),
    ({"num_batches": 2.0}, TypeError, "num_batches must be a whole number, got 2.0"),
    ({"num_batches": True}, TypeError, "num_batches must be a whole number, got True"),
    ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
    ({"batch_size": "8"}, TypeError, "batch_size must be a whole number, got '8'"),
    ({"batch_size": None}, TypeError, "batch_size must be a whole number, got None"),
    ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
    ({"seed": np.int64(-1)}, ValueError, "seed must be at least 0, got -1"),
    ({"seed": None}, TypeError, "seed must be a whole number, got None"),
    ({"draw": "random"}, ValueError, "draw must be one of 'shuffled', 'stratified', got 'random'"),
    ({"draw": None}, ValueError, "draw must be one of 'shuffled', 'stratified', got None"),
    ({"on_rare": "skip"}, ValueError, "on_rare must be one of 'raise', 'repeat', 'drop', got 'skip'"),
]

WRONG_LABELS = [
    ([], ValueError, "labels is empty; pass one label per image"),
    (np.zeros(0, dtype=int), ValueError, "labels is empty; pass one label per image"),
    (torch.zeros(0), ValueError, "labels is empty; pass one label per image"),
    (np.zeros((16, 0), dtype=bool), ValueError, "labels is empty; pass one label per image"),
    (0, ValueError, "labels as a number is how many images there are, at least 1, got 0"),
    (-5, ValueError, "labels as a number is how many images there are, at least 1, got -5"),
    (True, ValueError, "labels as a number is how many images there are, at least 1, got True"),
    ([[0], [0, 1]] * 8, TypeError, "labels must have one entry per image, all of one form: .*inhomogeneous"),
    (np.full((4, 2, 2), 3), ValueError, r"labels must be one class per image.* got shape \(4, 2, 2\).* such as 3"),
    (torch.ones(4, 2, 2).int(), ValueError, r"labels must be one class per image.* got shape \(4, 2, 2\)"),
    ([[0, 1], [2, -1]] * 8, ValueError, r"0/1 matrix \[images, classes\], got shape \(16, 2\).* such as -1, 0, 1, 2"),
    ([["a", "b"]] * 8, ValueError, r"labels must be one class per image.* got shape \(8, 2\).* such as a, b"),
    ([["0", "1"]] * 8, ValueError, r"labels must be one class per image.* got shape \(8, 2\)"),
    ([{"cat"}] * 16, TypeError, "labels must be classes .* got list holding object"),
    ([0, None] * 8, TypeError, "labels must be classes .* got list holding object"),
    ([1j] * 16, TypeError, "labels must be classes .* got list holding complex128"),
    ("cats", TypeError, "labels must be classes .* got str holding <U4"),
    (None, TypeError, "labels must be classes .* got NoneType holding object"),
    (2.5, TypeError, "labels must be classes .* or a number of images, got float holding float64"),
    ({0: 1}, TypeError, "labels must be classes .* got dict holding object"),
]

WRONG_HOLDOUTS = [
    (0.0, ValueError, "holdout as a fraction must lie between 0 and 1, got 0.0"),
    (1.0, ValueError, "holdout as a fraction must lie between 0 and 1, got 1.0"),
    (-0.2, ValueError, "holdout as a fraction must lie between 0 and 1, got -0.2"),
    (np.float32(1.5), ValueError, "holdout as a fraction must lie between 0 and 1, got 1.5"),
    (float("nan"), ValueError, "holdout as a fraction must lie between 0 and 1, got nan"),
    ([], ValueError, r"holdout names no image, got \[\]; pass None for no holdout"),
    (torch.zeros(0, dtype=int), ValueError, "holdout names no image, .*; pass None for no holdout"),
    ([0, 1, 16], ValueError, "holdout names positions from 0 to 16, but labels has 16 entries"),
    ([-1, 3], ValueError, "holdout names positions from -1 to 3, but labels has 16 entries"),
    (1, TypeError, "holdout must be a fraction or the positions of images, got 1"),
    ([0.5, 1.5], TypeError, r"holdout must be a fraction or the positions of images, got \[0.5, 1.5\]"),
    ([[0, 1], [2, 3]], TypeError, r"holdout must be a fraction or the positions of images, got \[\[0, 1\], \[2, 3\]\]"),
    ("half", TypeError, "holdout must be a fraction or the positions of images, got 'half'"),
    ([True, False] * 8, TypeError, r"holdout must be a fraction or the positions of images, got \[True, False"),
]


def values_of(cases):
    return [" ".join(repr(value).split())[:40] for value, _, _ in cases]


@pytest.mark.parametrize(("change", "error", "message"), WRONG_SETTINGS, ids=values_of(WRONG_SETTINGS))
def test_a_wrong_setting_is_refused_by_name(change, error, message):
    with pytest.raises(error, match=f"^{message}$"):
        MatchedGroups(**{**GOOD, **change})


@pytest.mark.parametrize(("labels", "error", "message"), WRONG_LABELS, ids=values_of(WRONG_LABELS))
@pytest.mark.parametrize("matched", [True, False])
def test_wrong_labels_are_refused_by_what_they_are(labels, error, message, matched):
    with pytest.raises(error, match=message):
        MatchedGroups(**{**GOOD, "labels": labels, "matched": matched})


@pytest.mark.parametrize(("holdout", "error", "message"), WRONG_HOLDOUTS, ids=values_of(WRONG_HOLDOUTS))
@pytest.mark.parametrize("matched", [True, False])
def test_a_wrong_holdout_is_refused_with_its_value(holdout, error, message, matched):
    with pytest.raises(error, match=message):
        MatchedGroups(**GOOD, holdout=holdout, matched=matched)


@pytest.mark.parametrize("matched", [True, False])
def test_a_batch_size_that_no_epoch_can_fill_is_refused(matched):
    MatchedGroups([0, 1] * 8, num_batches=2, batch_size=8, seed=0, matched=matched)
    with pytest.raises(ValueError, match=r"batch_size=9 with num_batches=2 needs 18 images.* only 16 .* use smaller"):
        MatchedGroups([0, 1] * 8, num_batches=2, batch_size=9, seed=0, matched=matched)


def test_images_of_dropped_classes_do_not_count_towards_a_group():
    with pytest.raises(ValueError, match=r"batch_size=2 with num_batches=3 needs 6 images.* only 5 can be drawn"):
        MatchedGroups([0] * 5 + [1, 1], num_batches=3, batch_size=2, seed=0, on_rare="drop")


def test_classes_whose_rests_are_too_many_to_fill_a_group_are_refused():
    labels = [0, 1, 2, 3] * 3
    MatchedGroups(labels, num_batches=2, batch_size=4, seed=0)
    with pytest.raises(
        ValueError, match=r"batch_size=5 cannot be filled.*num_batches=2 .* room for 4 labels; use small"
    ):
        MatchedGroups(labels, num_batches=2, batch_size=5, seed=0)


def test_a_holdout_too_small_to_fill_a_validation_mini_batch_is_refused():
    MatchedGroups([0] * 40, num_batches=2, batch_size=3, seed=0, holdout=[5, 6, 7])
    with pytest.raises(ValueError, match=r"batch_size=4 cannot be filled.* room for 3 labels.* a larger holdout"):
        MatchedGroups([0] * 40, num_batches=2, batch_size=4, seed=0, holdout=[5, 6, 7])


@pytest.mark.parametrize(("epoch", "error"), [(-1, ValueError), (1.0, TypeError), (True, TypeError), (None, TypeError)])
def test_an_epoch_must_be_a_whole_number_and_a_wrong_one_changes_nothing(epoch, error):
    groups = MatchedGroups(**GOOD)
    first = list(MatchedGroups(**GOOD))
    with pytest.raises(error, match=f"epoch must be .* got {epoch}"):
        groups.set_epoch(epoch)
    assert list(groups) == first
