"""Mixing inside a run: within mini-batches, never in evaluation, and the same after a stop."""

from itertools import chain, islice

import pytest
import torch

from deepbilevel.rules.catalog import RULES
from tests.training.test_combinations import UPDATES, digits, started


def first_groups(loop, count=2, epoch=0):
    parts = loop.parts
    return list(islice(parts.train.groups(parts.groups, epoch, 0, num_parts=parts.num_parts), count))


@pytest.mark.parametrize("method", RULES)
def test_images_are_mixed_within_their_mini_batch(method):
    settings = {"method": method, "data__limit": 300}
    plain, mixed = (first_groups(started(digits(**settings, mixing=mixing))) for mixing in (None, "mixup"))
    lams = []
    for before, after in zip(chain(*plain), chain(*mixed), strict=True):
        assert torch.equal(before.indices, after.indices)
        assert after.labels.shape == (len(before.labels), 10)
        # The permutation keeps the mean of the mini-batch, and no other image gets in.
        torch.testing.assert_close(after.images.mean(0), before.images.mean(0))
        torch.testing.assert_close(after.labels.sum(0), torch.bincount(before.labels, minlength=10).float())
        assert not torch.equal(after.images, before.images)
        lams.append(after.labels[(after.labels > 0).sum(1) == 2].max().item())
    assert len(set(lams)) == len(lams)  # each mini-batch has its own


def test_every_epoch_and_seed_mixes_differently():
    loops = [started(digits(mixing="mixup", data__limit=300, seed=seed)) for seed in (0, 0, 1)]
    [[one]], [[same]], [[other]] = ([group[:1] for group in first_groups(loop, 1)] for loop in loops)
    assert torch.equal(one.images, same.images)
    assert not torch.equal(one.labels, other.labels)
    [later] = first_groups(started(digits(mixing="mixup", data__limit=300)), 1, epoch=1)
    assert not torch.equal(one.labels, later[0].labels)


def test_evaluation_sees_images_as_they_are():
    plain, mixed = (started(digits(mixing=mixing, data__limit=300)) for mixing in (None, "mixup"))
    for feeds in ((plain.parts.train, mixed.parts.train), (plain.parts.test, mixed.parts.test)):
        for before, after in zip(*(feed.batches(100) for feed in feeds), strict=True):
            assert torch.equal(before.images, after.images)
            assert torch.equal(before.labels, after.labels)


@pytest.mark.parametrize("method", UPDATES)
@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_run_that_is_stopped_in_mid_epoch_ends_with_the_same_bits(method, stop):
    spec = digits(method=method, mixing="mixup", epochs=2, data__limit=400, group__batch_size=8)
    unbroken = started(spec)
    for _ in unbroken.run():
        pass
    first = started(spec)
    for _ in islice(first.run(), stop):
        pass
    assert 0 < first.group < first.parts.groups.num_groups
    state = first.state_dict()
    torch.manual_seed(99)  # another process would begin with other numbers
    second = started(spec)
    second.load_state_dict(state)
    for _ in second.run():
        pass
    assert second.history == unbroken.history
    for one, other in zip(unbroken.parts.model.parameters(), second.parts.model.parameters(), strict=True):
        assert torch.equal(one, other)
