"""Groups and batches are made as they are needed: an epoch of a million images costs what a few groups of it cost."""

import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
import torch
from PIL import Image

from deepbilevel import MatchedGroups
from deepbilevel_lab.data import ImagesOnDisk
from deepbilevel_lab.data.recipes import find_recipe
from deepbilevel_lab.data.views import RandomArea
from deepbilevel_lab.training import feeding
from deepbilevel_lab.training.feeding import Feed

NUM_IMAGES, NUM_CLASSES = 1_280_000, 1000
BYTES = 15 * 2**20  # 190 million was what the keys of an epoch took


@pytest.fixture
def make_feed(monkeypatch):
    """Return what makes a feed of files that are all the same picture, and need not exist."""
    picture = Image.linear_gradient("L").resize((40, 40)).convert("RGB")
    monkeypatch.setattr(feeding, "decode_rgb", lambda path, needed_side: picture)

    def make(num_images=NUM_IMAGES, num_classes=NUM_CLASSES, **options):
        data = ImagesOnDisk(
            paths=[Path("one.png")] * num_images,
            labels=torch.arange(num_images) % num_classes,
            class_names=tuple(map(str, range(num_classes))),
        )
        device = torch.device("cpu")
        return Feed(data, find_recipe("inception"), RandomArea(32), split="train", seed=0, device=device, **options)

    return make


def peak(count, batches):
    tracemalloc.start()
    try:
        taken = list(islice(batches, count))
        return tracemalloc.get_traced_memory()[1], taken
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_of_a_million_images_is_not_listed_before_it_begins(make_feed, monkeypatch, workers):
    feed = make_feed(workers=workers)
    sampler = MatchedGroups(feed.data.labels, num_batches=8, batch_size=32, seed=0)
    drawn = sampler._epoch(0)
    monkeypatch.setattr(sampler, "_epoch", lambda epoch: drawn)  # its arrays are not what is measured
    memory, groups = peak(3, feed.groups(sampler, 0, 0, num_parts=8))
    assert memory < BYTES
    assert [[batch.indices.tolist() for batch in group] for group in groups] == drawn[:3].tolist()


@pytest.mark.parametrize("crops", [1, 10])
def test_neither_is_an_evaluation(make_feed, crops):
    memory, batches = peak(3, make_feed().batches(250 // crops, crops=crops))
    assert memory < BYTES
    assert [batch.indices[0].item() for batch in batches] == ([0, 250, 500] if crops == 1 else [0, 0, 0])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_group_drawn_again_does_not_disturb_the_epoch_under_way(make_feed, workers):
    """The loop does so to say which images a loss was of."""
    feed = make_feed(120, 3, workers=workers)
    sampler = MatchedGroups(feed.data.labels, num_batches=3, batch_size=4, seed=1)
    sampler.set_epoch(1)
    whole = list(feed.groups(sampler, 1, 0, num_parts=3))
    assert len(whole) == sampler.num_groups == 10
    sampler.set_epoch(1)
    taken = []
    for group in feed.groups(sampler, 1, 0, num_parts=3):
        taken.append(group)
        state = sampler.state_dict(num_groups=len(taken))
        if len(taken) in (2, 5):
            sampler.load_state_dict(state)
            again = list(islice(sampler, 3))
            assert again == [batch.indices.tolist() for batch in whole[len(taken)]]
        assert (state["epoch"], state["position"]) == ((2, 0) if len(taken) == 10 else (1, 3 * len(taken)))
    for mine, other in zip(taken, whole, strict=True):
        assert all(torch.equal(a.images, b.images) for a, b in zip(mine, other, strict=True))
        assert all(torch.equal(a.indices, b.indices) for a, b in zip(mine, other, strict=True))
