"""The queue of one class deals its images in turn, and none twice to a group."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel.sampling.draws import ImageQueue


def queue_of(num_images: int, seed: int = 0) -> ImageQueue:
    return ImageQueue(np.arange(100, 100 + num_images), np.random.RandomState(seed))


def deal(queue: ImageQueue, counts: list[int]) -> list[list[int]]:
    """Deal ``counts[g]`` images to each group g."""
    images = queue.take(np.repeat(np.arange(len(counts)), counts))
    return [part.tolist() for part in np.split(images, np.cumsum(counts)[:-1])]


@st.composite
def epochs_of_groups(draw, *, larger_than_the_class=False):
    """Draw a class size and, epoch by epoch, how many of its images each group wants."""
    size = draw(st.integers(1, 12))
    counts = st.integers(0, 3 * size if larger_than_the_class else size)
    return size, draw(st.lists(st.lists(counts, min_size=1, max_size=6), min_size=1, max_size=4))


@given(epochs_of_groups(), st.integers(0, 99))
def test_a_group_gets_no_image_twice(wanted, seed):
    size, epochs = wanted
    queue = queue_of(size, seed)
    for counts in epochs:
        groups = deal(queue, counts)
        assert [len(group) for group in groups] == counts
        assert all(len(set(group)) == len(group) for group in groups)


@given(epochs_of_groups(larger_than_the_class=True), st.integers(0, 99))
def test_all_images_come_once_before_any_comes_again(wanted, seed):
    size, epochs = wanted
    queue = queue_of(size, seed)
    dealt = [image for counts in epochs for group in deal(queue, counts) for image in group]
    for start in range(0, len(dealt), size):
        turn = dealt[start : start + size]
        assert len(set(turn)) == len(turn)
        assert set(turn) <= set(range(100, 100 + size))


@given(st.integers(1, 12), st.integers(0, 99))
def test_a_group_larger_than_the_class_repeats_as_little_as_possible(size, seed):
    (group,) = deal(queue_of(size, seed), [2 * size])
    assert sorted(group) == sorted(2 * [*range(100, 100 + size)])


def test_an_empty_demand_deals_nothing_and_changes_nothing():
    queue, other = queue_of(5), queue_of(5)
    assert deal(queue, [0, 0]) == [[], []]
    assert deal(queue, [3]) == deal(other, [3])


def test_a_group_may_get_the_image_with_which_the_group_before_it_ended():
    last_and_next = [deal(queue_of(3, seed), [3, 3]) for seed in range(50)]
    assert any(before[-1] == after[0] for before, after in last_and_next)


def test_every_order_of_a_class_is_equally_likely():
    queue = queue_of(3)
    orders = [tuple(group) for group in deal(queue, [3] * 6000)]
    counts = np.array([orders.count(order) for order in sorted(set(orders))])
    assert len(counts) == 6
    # Chi-square with 5 degrees of freedom; 20.5 is passed by chance once in a thousand seeds.
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5


def test_the_images_that_complete_a_group_are_a_random_choice_of_those_it_lacks():
    completing = []
    for seed in range(600):
        first, second = deal(queue_of(4, seed), [3, 3])
        remaining = second[0]  # the one image the first turn still had
        assert remaining not in first
        completing.append(tuple(sorted(first.index(image) for image in second[1:])))
    counts = np.array([completing.count(pair) for pair in [(0, 1), (0, 2), (1, 2)]])
    assert counts.sum() == 600
    assert ((counts - 200) ** 2 / 200).sum() < 13.8  # once in a thousand, 2 degrees of freedom


def test_an_image_that_had_to_step_back_for_one_group_may_come_in_the_very_next():
    came_next = set()
    for seed in range(50):
        _, second, (third,) = deal(queue_of(4, seed), [3, 3, 1])
        came_next.add(third == second[0])  # second[0] ended the first turn, so it was kept out of its group's next turn
    assert came_next == {True, False}
