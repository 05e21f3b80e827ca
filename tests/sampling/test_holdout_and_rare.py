"""Images that only ever validate, and classes too small for a group."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel import MatchedGroups
from tests.sampling.claims import (
    DRAWS,
    assert_disjoint,
    assert_matched,
    assert_visited_evenly,
    cases,
    pools_of,
    shuffled_labels,
    take_epochs,
)

LABELS = shuffled_labels([30, 20, 10])
POSITIONS = [*np.flatnonzero(LABELS == 0)[:6], *np.flatnonzero(LABELS == 1)[:5], *np.flatnonzero(LABELS == 2)[:3]]


@given(cases(holdouts=(0.1, 0.34, 0.5)), st.booleans())
def test_held_out_images_only_validate_and_only_they_do(case, matched):
    groups = case.build(matched=matched)
    epochs = take_epochs(groups, 3)
    assert np.isin(epochs[:, :, 0], groups.holdout).all()
    assert not np.isin(epochs[:, :, 1:], groups.holdout).any()


@given(
    st.lists(st.integers(2, 60), min_size=1, max_size=6),
    st.sampled_from([0.01, 0.1, 0.25, 0.5, np.float32(0.25), np.float64(0.1)]),
    st.booleans(),
)
def test_a_fraction_is_held_out_of_every_class_and_at_least_one_image(sizes, fraction, matched):
    labels = shuffled_labels(sizes)
    groups = MatchedGroups(labels, num_batches=2, batch_size=1, seed=0, holdout=fraction, matched=matched)
    held_out = np.bincount(labels[groups.holdout])
    assert (held_out >= 1).all()
    assert (np.abs(held_out - fraction * np.array(sizes)) <= np.where(held_out == 1, 1, 0.5)).all()


def test_who_is_held_out_depends_on_the_seed_alone():
    first = MatchedGroups(LABELS, num_batches=3, batch_size=4, seed=0, holdout=0.2)
    second = MatchedGroups(
        LABELS, num_batches=2, batch_size=2, seed=0, holdout=0.2, draw="stratified", matched=False, on_rare="repeat"
    )
    other = MatchedGroups(LABELS, num_batches=3, batch_size=4, seed=1, holdout=0.2)
    assert first.holdout.tolist() == second.holdout.tolist() != other.holdout.tolist()


@pytest.mark.parametrize("matched", [True, False])
@pytest.mark.parametrize(
    "convert",
    [list, tuple, np.array, np.uint8, torch.tensor, lambda positions: [*positions, *positions[::-1]]],
    ids=["list", "tuple", "numpy", "numpy uint8", "tensor", "repeated"],
)
def test_trusted_images_can_be_named_by_their_positions(convert, matched):
    groups = MatchedGroups(LABELS, num_batches=3, batch_size=4, seed=0, holdout=convert(POSITIONS), matched=matched)
    epochs = take_epochs(groups, 4)
    assert groups.holdout.tolist() == sorted(POSITIONS)
    assert set(epochs[:, :, 0].flat) == set(POSITIONS)
    assert set(epochs[:, :, 1:].flat) == set(range(60)) - set(POSITIONS)
    assert groups.num_groups == 60 // 12
    if matched:
        assert_matched(epochs, LABELS)


def test_without_a_holdout_every_image_comes_to_validate():
    groups = MatchedGroups(LABELS, num_batches=3, batch_size=4, seed=0)
    assert groups.holdout is None
    assert set(take_epochs(groups, 40)[:, :, 0].flat) == set(range(60))


@pytest.mark.parametrize("labels", [60, np.linspace(0, 1, 60)], ids=["number", "floats"])
def test_images_without_classes_can_be_held_out(labels):
    groups = MatchedGroups(labels, num_batches=3, batch_size=4, seed=0, matched=False, holdout=0.2)
    epochs = take_epochs(groups, 3)
    assert set(epochs[:, :, 0].flat) == set(groups.holdout)
    assert len(groups.holdout) == 12
    assert_disjoint(epochs)


def test_multi_label_images_are_held_out_by_anchor():
    positive = np.eye(3, dtype=int)[LABELS]
    groups = MatchedGroups(positive, num_batches=3, batch_size=4, seed=0, holdout=0.2)
    assert np.bincount(LABELS[groups.holdout]).tolist() == [6, 4, 2]


def test_a_rare_class_is_named_with_its_count_and_k():
    with pytest.raises(ValueError, match=r"'moth' \(3 to train\).*num_batches=4.*on_rare='drop'.*on_rare='repeat'"):
        MatchedGroups(["ant"] * 10 + ["moth"] * 3, num_batches=4, batch_size=2, seed=0)


def test_of_many_rare_classes_five_are_named():
    with pytest.raises(ValueError, match=r"class '1' .*'5' \(1 to train\) and 4 more has") as caught:
        MatchedGroups([0] * 10 + list(range(1, 10)), num_batches=2, batch_size=2, seed=0)
    assert "'6'" not in str(caught.value)


def test_a_class_too_small_beside_its_holdout_is_named_with_both_counts():
    labels = [0] * 12 + [1] * 4
    with pytest.raises(ValueError, match=r"'1' \(2 to train, 2 to validate\).*need 3 to train and 1 to validate"):
        MatchedGroups(labels, num_batches=4, batch_size=1, seed=0, holdout=0.5)


@given(st.lists(st.integers(1, 9), max_size=4), st.integers(2, 5), st.sampled_from(DRAWS))
def test_dropped_classes_never_come_and_the_others_are_as_without_them(rest, k, draw):
    labels = shuffled_labels([20, *rest])
    groups = MatchedGroups(labels, num_batches=k, batch_size=2, seed=0, draw=draw, on_rare="drop")
    kept = np.bincount(labels) >= k
    epochs = take_epochs(groups, 3)
    assert not np.isin(labels[epochs], np.flatnonzero(~kept)).any()
    assert groups.num_groups == kept[labels].sum() // (2 * k)
    assert_matched(epochs, labels)
    assert_disjoint(epochs)
    assert_visited_evenly(epochs, pools_of(groups, labels))


@pytest.mark.parametrize("holdout", [None, 0.3])
@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.integers(2, 7), st.sampled_from(DRAWS))
def test_only_images_of_rare_classes_repeat_and_visits_stay_even(holdout, rest, k, draw):
    labels = shuffled_labels([20, *rest])
    groups = MatchedGroups(labels, num_batches=k, batch_size=2, seed=0, draw=draw, on_rare="repeat", holdout=holdout)
    epochs = take_epochs(groups, 4)
    assert groups.num_groups == len(labels) // (2 * k)
    assert_matched(epochs, labels)
    assert_visited_evenly(epochs, pools_of(groups, labels))
    large_enough = np.bincount(labels) >= k
    if groups.holdout is not None:
        large_enough = np.bincount(np.delete(labels, groups.holdout), minlength=len(large_enough)) >= k - 1
    for group in epochs.reshape(-1, 2 * k):
        twice = np.flatnonzero(np.bincount(group) > 1)
        assert not large_enough[labels[twice]].any()


@pytest.mark.parametrize("draw", DRAWS)
def test_a_repeated_class_keeps_its_frequency(draw):
    labels = np.array([0] * 19 + [1])
    epochs = take_epochs(MatchedGroups(labels, num_batches=5, batch_size=2, seed=0, draw=draw, on_rare="repeat"), 50)
    groups = labels[epochs].reshape(100, 10)
    assert set(groups.sum(axis=1)) == {0, 5}  # once in each of the five mini-batches, or not at all
    assert groups.mean() == pytest.approx(1 / 20, abs=0.02)


@pytest.mark.parametrize(
    ("holdout", "counts"),
    [([0, 1, 2], "5 to train, 0 to validate"), ([0, 1, 2, *range(12, 17)], "0 to train, 5 to validate")],
    ids=["none validates", "none trains"],
)
def test_a_class_that_only_trains_or_only_validates_can_only_be_dropped(holdout, counts):
    labels = np.array([0] * 12 + [1] * 5)
    settings = {"num_batches": 3, "batch_size": 1, "seed": 0, "holdout": holdout}
    for on_rare in ("raise", "repeat"):
        with pytest.raises(ValueError, match=rf"'1' \({counts}\).*can only be dropped"):
            MatchedGroups(labels, **settings, on_rare=on_rare)
    groups = MatchedGroups(labels, **settings, on_rare="drop")
    assert not labels[take_epochs(groups, 3)].any()
    assert groups.num_groups == 12 // 3


def test_a_data_set_of_rare_classes_only_cannot_be_dropped():
    with pytest.raises(ValueError, match=r"on_rare='drop' leaves no class.*num_batches=3; use fewer"):
        MatchedGroups([0, 0, 1, 1, 2, 2], num_batches=3, batch_size=1, seed=0, on_rare="drop")
