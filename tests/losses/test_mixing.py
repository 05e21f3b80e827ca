"""Mixup: what becomes of images and labels, and that it follows from the generator alone."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from deepbilevel_lab.losses import CrossEntropy, Mixup
from tests.losses.tasks import PURE_LOSSES


class Fixed:
    """A generator that says what it is told."""

    def __init__(self, lam, others):
        self.lam, self.others = lam, others

    def beta(self, a, b):
        return self.lam

    def permutation(self, count):
        return np.array(self.others)


def mixed(images, labels, num_classes, alpha=1.0, seed=0):
    return Mixup(alpha)(images, labels, num_classes=num_classes, generator=np.random.default_rng(seed))


def test_an_example_worked_by_hand():
    images, labels = torch.tensor([[8.0], [4.0], [0.0]]), torch.tensor([0, 1, 2])
    result, shares = Mixup()(images, labels, num_classes=3, generator=Fixed(0.75, [1, 2, 0]))
    # 0.75 * 8 + 0.25 * 4, 0.75 * 4 + 0.25 * 0, 0.75 * 0 + 0.25 * 8
    assert result.tolist() == [[7.0], [3.0], [2.0]]
    assert shares.tolist() == [[0.75, 0.25, 0.0], [0.0, 0.75, 0.25], [0.25, 0.0, 0.75]]


@given(seed=st.integers(0, 2**64 - 1), n=st.integers(2, 20), alpha=st.floats(1e-3, 1000))
def test_nothing_is_lost_or_made(seed, n, alpha):
    generator = torch.Generator().manual_seed(n)
    images = torch.randn(n, 1, 3, 3, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (n,), generator=generator)
    result, shares = mixed(images, labels, 4, alpha, seed)
    torch.testing.assert_close(result.mean(0), images.mean(0))  # every image is the other one exactly once
    torch.testing.assert_close(shares.sum(0), F.one_hot(labels, 4).sum(0).double())
    torch.testing.assert_close(shares.sum(1), torch.ones(n, dtype=torch.float64))
    assert bool((shares >= 0).all())
    # One lam for all, in images as in labels: where two classes are blended, their shares are lam and 1 - lam.
    blended = shares[(shares > 0).sum(1) == 2]
    if len(blended):
        torch.testing.assert_close(blended.max(1).values, blended.max().expand(len(blended)))


def test_images_and_labels_are_blended_alike():
    labels = torch.arange(5)
    images = F.one_hot(labels, 5).float()
    result, shares = mixed(images, labels, 5)
    assert torch.equal(result, shares)
    assert not torch.equal(result, images)


def test_it_follows_from_the_generator_and_touches_no_other_random_numbers():
    images, labels = torch.randn(6, 2), torch.arange(6) % 3
    before, numpys = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (mixed(images, labels, 3, seed=seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(numpys, np.random.get_state()[1])


@pytest.mark.parametrize(("alpha", "spread"), [(0.2, 0.4226), (1.0, 0.2887), (8.0, 0.1213)])
def test_lam_has_the_distribution_it_should(alpha, spread):
    images, labels = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)). Half of the permutations of two leave things as they are.
    drawn = [mixed(images, labels, 2, alpha, seed)[1] for seed in range(8000)]
    lams = torch.stack([shares[0, 0] for shares in drawn if shares[0, 0] != 1])
    assert lams.mean().item() == pytest.approx(0.5, abs=0.02)
    assert lams.std().item() == pytest.approx(spread, abs=0.02)


@pytest.mark.parametrize("loss", [kind() for kind in PURE_LOSSES.values()], ids=PURE_LOSSES)
def test_the_loss_of_mixed_labels_is_the_blend_of_two_losses(loss):
    # As in the code of mixup's authors, lam * loss(labels) + (1 - lam) * loss(labels of the others).
    scores, labels, others = torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]), [3, 0, 1, 4, 2]
    _, shares = Mixup()(torch.zeros(5, 1), labels, num_classes=3, generator=Fixed(0.3, others))
    torch.testing.assert_close(loss(scores, shares), 0.3 * loss(scores, labels) + 0.7 * loss(scores, labels[others]))


def test_unmixed_is_what_remains_where_lam_is_one():
    images, labels, scores = torch.randn(4, 2), torch.tensor([0, 1, 1, 0]), torch.randn(4, 2)
    result, shares = Mixup()(images, labels, num_classes=2, generator=Fixed(1.0, [1, 2, 3, 0]))
    assert torch.equal(result, images)
    torch.testing.assert_close(CrossEntropy()(scores, shares), CrossEntropy()(scores, labels))
