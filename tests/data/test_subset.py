"""Parts of a data set: the right images with the right labels, in proportion, and always the same ones."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from deepbilevel_lab.data.image_set import ImageSet, ImagesInMemory, ImagesOnDisk
from deepbilevel_lab.data.subset import choose_in_proportion, set_aside, take

NAMES = tuple("abcd")


def in_memory(labels, **more):
    """Return images that show their own number."""
    images = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2)
    return ImagesInMemory(labels=torch.tensor(labels), class_names=NAMES, images=images, **more)


def test_images_and_everything_known_about_them_are_taken_together():
    labels = [0, 1, 2, 3, 0, 1]
    data = in_memory(labels, clean_labels=torch.tensor(labels).flip(0))
    part = take(data, torch.tensor([4, 1, 3]))
    assert part.images[:, 0, 0, 0].tolist() == [4, 1, 3]
    assert part.labels.tolist() == [0, 1, 3]
    assert part.clean_labels.tolist() == [1, 0, 2]
    assert part.difficult is None
    assert part.class_names == NAMES
    assert len(data) == 6


def test_files_are_taken_with_their_labels_and_masks():
    def view(image):
        return torch.zeros(1)

    labels = torch.eye(4, dtype=torch.int64)
    paths = [Path(f"{number}.jpg") for number in range(4)]
    data = ImagesOnDisk(labels=labels, class_names=NAMES, paths=paths, view=view, difficult=labels.flip(0) > 0)
    part = take(data, torch.tensor([2, 0]))
    assert part.paths == [paths[2], paths[0]]
    assert torch.equal(part.labels, labels[[2, 0]])
    assert torch.equal(part.difficult, data.difficult[[2, 0]])
    assert part.view is view


def test_what_is_neither_in_memory_nor_on_disk_is_refused():
    class Elsewhere(ImageSet):
        def read(self, index):
            raise NotImplementedError

    with pytest.raises(TypeError, match="data must be images in memory or on disk, or a table, got Elsewhere"):
        take(Elsewhere(labels=torch.zeros(2), class_names=NAMES), torch.tensor([0]))


LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=120)


@given(LABELS, st.integers(0, 130))
@example([0] * 880 + list(range(1, 21)) * 6, 100)  # many small classes must not eat into a large one
def test_every_class_gets_its_share_to_within_one(labels, count):
    chosen = choose_in_proportion(torch.tensor(labels), count)
    assert len(chosen) == len(set(chosen.tolist())) == min(count, len(labels))
    assert chosen.dtype == torch.int64
    assert chosen.tolist() == sorted(chosen.tolist())
    sizes = np.bincount(labels)
    counts = np.bincount(np.array(labels)[chosen.numpy()], minlength=len(sizes))
    shares = len(chosen) * sizes / len(labels)
    assert np.all(np.abs(counts - shares) < 1)


def test_shares_that_are_whole_are_met_exactly():
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    chosen = choose_in_proportion(labels, 50)
    assert torch.bincount(labels[chosen]).tolist() == [30, 15, 5]


def test_the_choice_is_the_same_in_every_process_and_leaves_random_numbers_alone():
    labels = torch.arange(20) % 3
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    assert choose_in_proportion(labels, 6).tolist() == [1, 6, 8, 17, 18, 19]
    assert np.array_equal(before[0], np.random.get_state()[1])
    assert torch.equal(before[1], torch.get_rng_state())


def test_the_choice_is_not_the_beginning_of_each_class():
    labels = torch.arange(1000) // 500
    first = choose_in_proportion(labels, 100)
    assert 150 < first[:50].float().mean() < 350
    assert first[0] != 0 or first[1] != 1


def test_images_with_several_labels_are_chosen_at_random():
    labels = torch.ones(50, 4, dtype=torch.int64)
    chosen = choose_in_proportion(labels, 10)
    assert len(set(chosen.tolist())) == 10
    assert chosen.tolist() == sorted(chosen.tolist())
    assert chosen.max() > 20
    assert choose_in_proportion(labels, 50).tolist() == list(range(50))


@given(st.lists(st.integers(0, 3), min_size=10, max_size=100), st.floats(0.1, 0.9))
def test_what_is_set_aside_is_nowhere_else_and_nothing_is_lost(labels, rate):
    train, test = set_aside(in_memory(labels), rate)
    parts = [part.images[:, 0, 0, 0].tolist() for part in (train, test)]
    assert sorted(parts[0] + parts[1]) == list(range(len(labels)))
    assert len(test) == round(rate * len(labels))
    for part, numbers in zip((train, test), parts, strict=True):
        assert part.labels.tolist() == [labels[number] for number in numbers]


@given(st.lists(st.integers(0, 3), min_size=10, max_size=100), st.floats(0.1, 0.9))
def test_parts_set_other_samples_aside_until_there_are_no_more(labels, rate):
    data, count = in_memory(labels), round(rate * len(labels))
    parts = len(labels) // count
    found = [set_aside(data, rate, part=part)[1].images[:, 0, 0, 0].tolist() for part in range(parts + 1)]
    assert {len(part) for part in found} == {count}
    assert len({number for part in found[:-1] for number in part}) == parts * count
    assert found[-1] == found[0] == set_aside(data, rate)[1].images[:, 0, 0, 0].tolist()


def test_the_share_set_aside_is_in_proportion():
    _, test = set_aside(in_memory([0] * 40 + [1] * 20), 0.2)
    assert test.class_counts() == [8, 4, 0, 0]


@pytest.mark.parametrize(("count", "rate"), [(3, 0.1), (2, 0.9), (1, 0.5)])
def test_a_share_that_leaves_a_part_empty_is_refused(count, rate):
    with pytest.raises(ValueError, match=f"test_rate {rate} of {count} images leaves a part without any"):
        set_aside(in_memory([0] * count), rate)
