"""Labels come as often as in the data set, whichever way they are drawn."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from deepbilevel import MatchedGroups
from deepbilevel.sampling.draws import ShuffledDeck, StratifiedDraw
from tests.sampling.claims import DRAWS, cases, shuffled_labels, take_epochs

CLASSES = {"shuffled": ShuffledDeck, "stratified": StratifiedDraw}


def count_per_group(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return how often each class comes in each group, shape ``[groups, classes]``."""
    return (labels[:, :, None] == np.arange(num_classes)).sum(axis=1)


@st.composite
def capped_draws(draw):
    """Draw class sizes and caps that bind, and a batch size that just fits."""
    sizes = np.array(draw(st.lists(st.integers(1, 50), min_size=1, max_size=6)))
    caps = np.array([draw(st.integers(1, 5)) for _ in sizes])
    return sizes, caps, draw(st.integers(1, int(caps.sum())))


@pytest.mark.parametrize("sizes", [[30, 18, 12], [48, 12], [20, 20, 20]])
def test_a_shuffled_deck_holds_every_label_as_often_as_the_data_set(sizes):
    labels = shuffled_labels(sizes)
    groups = MatchedGroups(labels, num_batches=3, batch_size=4, seed=0)
    for _ in range(3):  # 3 epochs of 20 drawn labels are the 60 of a deck, each of them given 3 images
        visits = np.bincount(take_epochs(groups, 3).reshape(-1), minlength=60)
        assert (visits == 3).all()


@given(cases(holdouts=(None,)))
def test_a_stratified_group_holds_each_class_within_one_of_its_share(case):
    sizes = np.bincount(case.labels)
    groups = case.build(draw="stratified")
    share = groups.batch_size * sizes / sizes.sum()
    assume((share <= sizes // groups.num_batches).all())  # no class is too small for its share
    validation = take_epochs(groups, 3)[:, :, 0].reshape(-1, groups.batch_size)
    counts = count_per_group(case.labels[validation], len(sizes))
    assert (counts >= np.floor(share)).all()
    assert (counts <= np.ceil(share)).all()


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12), st.integers(1, 64), st.integers(0, 99))
def test_stratified_counts_are_the_share_rounded_up_or_down(sizes, batch_size, seed):
    sizes = np.array(sizes)
    draw = StratifiedDraw(sizes, batch_size, np.full(len(sizes), batch_size), np.random.RandomState(seed))
    counts = count_per_group(draw.draw(20), len(sizes))
    share = batch_size * sizes / sizes.sum()
    assert (counts.sum(axis=1) == batch_size).all()
    assert (np.abs(counts - share) < 1).all()


def test_stratified_classes_are_rounded_up_as_often_as_their_fraction_says():
    sizes = np.array([500, 250, 120, 80, 30, 20])
    draw = StratifiedDraw(sizes, 16, np.full(6, 16), np.random.RandomState(0))
    counts = count_per_group(np.concatenate([draw.draw(50) for _ in range(200)]), 6)
    share = 16 * sizes / 1000
    deviation = np.sqrt((share % 1) * (1 - share % 1) / len(counts))
    assert (np.abs(counts.mean(axis=0) - share) <= 4 * deviation).all()


def test_stratified_draws_do_not_always_round_the_same_classes_up_together():
    draw = StratifiedDraw(np.array([10, 10, 10, 10]), 2, np.full(4, 2), np.random.RandomState(0))
    pairs = {tuple(sorted(group)) for _ in range(50) for group in draw.draw(4).tolist()}
    assert pairs == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}


@pytest.mark.parametrize("holdout", [None, 0.2])
@pytest.mark.parametrize("draw", DRAWS)
def test_frequencies_follow_the_data_set_over_many_epochs(draw, holdout):
    sizes = np.array([140, 40, 20])
    labels = shuffled_labels(sizes.tolist())
    groups = MatchedGroups(labels, num_batches=4, batch_size=5, seed=1, draw=draw, holdout=holdout)
    drawn = labels[take_epochs(groups, 100).reshape(-1)]
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), sizes / sizes.sum(), atol=0.01)


@pytest.mark.parametrize("draw", DRAWS)
@given(capped_draws(), st.integers(0, 99))
def test_groups_are_filled_without_exceeding_what_a_class_can_give(draw, capped, seed):
    sizes, caps, batch_size = capped
    labels = CLASSES[draw](sizes, batch_size, caps, np.random.RandomState(seed))
    for _ in range(3):
        drawn = labels.draw(5)
        assert drawn.shape == (5, batch_size)
        assert (count_per_group(drawn, len(sizes)) <= caps).all()


@given(capped_draws())
def test_a_class_too_small_for_its_share_is_drawn_as_often_as_it_can_be(capped):
    sizes, caps, batch_size = capped
    too_small = batch_size * sizes / sizes.sum() >= caps
    counts = count_per_group(StratifiedDraw(sizes, batch_size, caps, np.random.RandomState(0)).draw(10), len(sizes))
    assert (counts[:, too_small] == caps[too_small]).all()


def test_what_a_capped_class_cannot_take_goes_to_the_others_in_proportion():
    draw = StratifiedDraw(np.array([60, 20, 10]), 9, np.array([3, 9, 9]), np.random.RandomState(0))
    assert (count_per_group(draw.draw(50), 3) == [3, 4, 2]).all()


def test_a_shuffled_label_without_room_waits_for_a_later_group():
    sizes, batch_size = np.array([60, 12]), 6
    draw = ShuffledDeck(sizes, batch_size, np.array([6, 2]), np.random.RandomState(0))
    free = ShuffledDeck(sizes, batch_size, np.array([6, 6]), np.random.RandomState(0))
    assert count_per_group(free.draw(120), 2)[:, 1].max() > 2  # so labels really had to wait
    counts = count_per_group(draw.draw(1200), 2)
    assert counts[:, 1].max() == 2
    assert (np.abs(counts.sum(axis=0) - 100 * sizes) <= batch_size).all()  # 100 decks, but for those still waiting


def test_a_shuffled_class_always_too_small_comes_in_every_group_and_does_not_shut_out_the_others():
    sizes = np.array([80, 15, 5])
    draw = ShuffledDeck(sizes, 8, np.array([2, 8, 8]), np.random.RandomState(0))
    counts = count_per_group(np.concatenate([draw.draw(20) for _ in range(20)]), 3)
    assert (counts[:, 0] == 2).all()
    np.testing.assert_allclose(counts.mean(axis=0)[1:], [6 * 0.75, 6 * 0.25], atol=0.1)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_class_with_little_holdout_validates_as_often_as_it_can(draw):
    labels = np.array([0] * 40 + [1] * 40)
    with pytest.warns(UserWarning, match=r"class '0' has a share of 3\.\d .* 1 places only.*hold out more"):
        groups = MatchedGroups(labels, num_batches=2, batch_size=6, seed=0, draw=draw, holdout=[0, *range(40, 50)])
    counts = count_per_group(labels[take_epochs(groups, 20)[:, :, 0].reshape(-1, 6)], 2)
    assert (counts == [1, 5]).all()
