"""Self-paced learning: percentiles and weights worked by hand, burn-in, and what is a constant to the gradient."""

import math

import pytest
import torch
from torch.nn import functional as F

from deepbilevel_lab.losses import SelfPaced
from deepbilevel_lab.specs import SpecError
from tests.losses.tasks import Shown, never, scores_of, task

LABELS = torch.zeros(3, dtype=torch.int64)


def losing(*losses):
    """Return scores of two classes with these cross-entropies for the first."""
    return scores_of(*([math.exp(-loss), 1 - math.exp(-loss)] for loss in losses))


def paced(epoch=0, **settings):
    objective = SelfPaced(**{"burn_in": 0.0, **settings}).make(task(LABELS, 2)).double()
    objective.begin_epoch(epoch, never)
    return objective


def test_two_mini_batches_worked_by_hand():
    objective = paced(percentile=50.0, decay=0.75, gamma=2.0)
    # The median 1 is the first threshold: weights 1, 1 and 1 - (2 - 1) / 2
    loss = objective(Shown().double(), losing(0.5, 1.0, 2.0), LABELS, LABELS)
    assert loss.item() == pytest.approx((0.5 + 1.0 + 0.5 * 2.0) / 3)
    # 0.75 * 1 + 0.25 * 3 = 1.5: weights 1, 1 - 1.5 / 2 and 0
    loss = objective(Shown().double(), losing(1.0, 3.0, 5.0), LABELS, LABELS)
    assert objective.threshold.item() == pytest.approx(1.5)
    assert loss.item() == pytest.approx((1.0 + 0.25 * 3.0) / 3)


def test_without_gamma_images_above_the_threshold_do_not_count():
    loss = paced(percentile=50.0, gamma=0.0)(Shown().double(), losing(0.5, 1.0, 1.001), LABELS, LABELS)
    assert loss.item() == pytest.approx((0.5 + 1.0) / 3)


def test_weights_are_constants_to_the_gradient():
    scores = losing(0.5, 1.0, 2.0).requires_grad_()
    paced(percentile=50.0, gamma=2.0)(Shown().double(), scores, LABELS, LABELS).backward()
    wanted = F.one_hot(LABELS, 2).double()
    weights = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(scores.grad, weights[:, None] * (scores.detach().softmax(1) - wanted) / 3)


@pytest.mark.parametrize(("epoch", "burning"), [(0, True), (1, True), (2, False)])
def test_burn_in_is_cross_entropy_bit_for_bit_and_already_learns_the_threshold(epoch, burning):
    objective = paced(epoch, burn_in=0.2)  # of ten epochs
    scores = losing(0.5, 1.0, 9.0)
    loss = objective(Shown().double(), scores, LABELS, LABELS)
    assert torch.equal(loss, F.cross_entropy(scores, LABELS)) is burning
    assert objective.threshold.item() == pytest.approx(5.0)  # half way from 1 to 9


def test_everything_counts_fully_below_the_hundredth_percentile():
    scores, labels = torch.randn(8, 4).double(), torch.arange(8) % 4
    loss = paced(percentile=100.0)(Shown().double(), scores, labels, labels)
    torch.testing.assert_close(loss, F.cross_entropy(scores, labels))


def test_shares_of_classes_are_labels_too():
    scores, labels = torch.randn(8, 4).double(), torch.arange(8) % 4
    hard, soft = (paced()(Shown().double(), scores, y, labels) for y in (labels, F.one_hot(labels, 4).double()))
    torch.testing.assert_close(hard, soft)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"percentile": 0.0}, "percentile must be more than 0 and at most 100, got 0.0"),
        ({"percentile": 101.0}, "percentile must be more than 0 and at most 100, got 101.0"),
        ({"decay": 1.0}, "decay must be at least 0 and less than 1, got 1.0"),
        ({"burn_in": 1.1}, "burn_in is a share of the epochs, so it must lie in 0 .. 1, got 1.1"),
        ({"gamma": -1.0}, "gamma must not be negative, got -1.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(SpecError, match=message):
        SelfPaced(**settings)
