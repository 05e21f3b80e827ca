"""What the k mini-batches of a group have in common, and what they do not share."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
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


@given(cases())
def test_mini_batches_of_a_group_carry_the_same_ordered_labels(case):
    assert_matched(take_epochs(case.build(), 4), case.labels)


@given(cases())
def test_a_group_never_holds_an_image_twice(case):
    assert_disjoint(take_epochs(case.build(), 4))


@given(cases(capped=True))
def test_groups_that_need_nearly_all_images_are_filled_without_repeating_one(case):
    epochs = take_epochs(case.build(), 4)
    assert_matched(epochs, case.labels)
    assert_disjoint(epochs)


@settings(max_examples=60)
@given(cases())
def test_images_of_a_class_are_visited_evenly_after_every_mini_batch_of_several_epochs(case):
    groups = case.build()
    assert_visited_evenly(take_epochs(groups, 4), pools_of(groups, case.labels))


@settings(max_examples=30)
@given(cases(capped=True))
def test_visits_stay_even_when_groups_need_nearly_all_images(case):
    groups = case.build()
    assert_visited_evenly(take_epochs(groups, 4), pools_of(groups, case.labels))


@given(cases())
def test_an_epoch_has_as_many_groups_as_the_images_fill(case):
    groups = case.build()
    expected = len(case.labels) // (groups.num_batches * groups.batch_size)
    batches = list(groups)
    assert groups.num_groups == expected >= 1
    assert len(groups) == len(batches) == expected * groups.num_batches
    assert {len(batch) for batch in batches} == {groups.batch_size}


@given(cases())
def test_without_matching_groups_are_disjoint_and_evenly_visited(case):
    groups = case.build(matched=False)
    epochs = take_epochs(groups, 3)
    assert_disjoint(epochs)
    assert_visited_evenly(epochs, pools_of(groups, np.zeros_like(case.labels)))


def test_without_matching_labels_of_a_group_differ():
    labels = shuffled_labels([40, 40, 40])
    epochs = take_epochs(MatchedGroups(labels, num_batches=3, batch_size=10, seed=0, matched=False), 2)
    carried = labels[epochs]
    assert (carried[:, :, 0] != carried[:, :, 1]).any(axis=-1).all()


def test_without_matching_rare_classes_are_welcome():
    groups = MatchedGroups([0] * 15 + [1], num_batches=4, batch_size=2, seed=0, matched=False)
    assert set(take_epochs(groups, 1).flat) == set(range(16))


@pytest.mark.parametrize("labels", [60, np.int64(60)], ids=["int", "numpy int"])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_number_of_images_gives_random_groups_and_one_warning(labels, draw):
    with pytest.warns(UserWarning, match="no labels.*matched=False") as caught:
        groups = MatchedGroups(labels, num_batches=3, batch_size=4, seed=0, draw=draw)
    epochs = take_epochs(groups, 3)  # another warning here would be an error
    assert len(caught) == 1
    assert caught[0].filename == __file__  # it points at the line that built the sampler
    assert_disjoint(epochs)
    assert_visited_evenly(epochs, [np.arange(60)])
    assert (np.sort(epochs.reshape(3, -1)) == np.arange(60)).all()


@pytest.mark.parametrize(
    "targets",
    [
        np.linspace(0, 1, 24),
        np.linspace(0, 1, 48, dtype=np.float32).reshape(24, 2),
        torch.linspace(0, 1, 24, dtype=torch.bfloat16),
        np.linspace(0, 1, 24).tolist(),
        torch.arange(24.0),
    ],
    ids=["float64", "float32 matrix", "bfloat16", "list", "whole numbers stored as floats"],
)
def test_real_valued_targets_give_random_groups_and_one_warning(targets):
    with pytest.warns(UserWarning, match=r"float\d+.*targets rather than classes") as caught:
        groups = MatchedGroups(targets, num_batches=2, batch_size=3, seed=0)
    epochs = take_epochs(groups, 2)
    assert len(caught) == 1
    assert_disjoint(epochs)
    assert_visited_evenly(epochs, [np.arange(24)])


@pytest.mark.parametrize("targets", [24, np.linspace(0, 1, 24)], ids=["number", "floats"])
def test_random_groups_that_are_asked_for_bring_no_warning(targets):
    groups = MatchedGroups(targets, num_batches=2, batch_size=3, seed=0, matched=False)  # a warning would be an error
    assert len(groups) == 8


@given(st.lists(st.integers(2, 9), min_size=1, max_size=4), st.sampled_from(DRAWS))
def test_pairs_of_single_images_are_matched(sizes, draw):
    labels = shuffled_labels(sizes)
    groups = MatchedGroups(labels, num_batches=2, batch_size=1, seed=0, draw=draw)
    epochs = take_epochs(groups, 3)
    assert_matched(epochs, labels)
    assert_disjoint(epochs)
    assert_visited_evenly(epochs, pools_of(groups, labels))


def test_the_smallest_sampler_of_all_works():
    assert sorted(MatchedGroups([7, 7], num_batches=2, batch_size=1, seed=0)) == [[0], [1]]
