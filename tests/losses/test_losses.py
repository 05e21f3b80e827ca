"""Losses: numbers worked by hand, gradients, extremes, and where two of them are the same."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from deepbilevel_lab.losses import (
    CrossEntropy,
    GeneralizedCrossEntropy,
    HardBootstrap,
    LabelSmoothing,
    SoftBootstrap,
)
from deepbilevel_lab.losses.pure import multi_label_loss
from deepbilevel_lab.specs import SpecError
from tests.losses.tasks import PURE_LOSSES

every_loss = pytest.mark.parametrize("loss", [kind() for kind in PURE_LOSSES.values()], ids=PURE_LOSSES)

# Scores whose softmax is 1/2, 1/4, 1/4; the label is the second class.
SCORES = torch.tensor([[math.log(2), 0.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([1])
LOG2 = math.log(2)


def some_batch(seed=0, n=6, c=4, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(n, c, generator=generator, dtype=torch.float64)
    return scores, torch.randint(c, (n,), generator=generator)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # -log 1/4
        (CrossEntropy(), 2 * LOG2),
        # The target is 0.9 of the second class and 0.1/3 of each = (0.1, 2.8, 0.1) / 3; times (1, 2, 2) log 2
        (LabelSmoothing(0.1), 5.9 / 3 * LOG2),
        # The target is 0.05 (1/2, 1/4, 1/4) + 0.95 of the second = (0.025, 0.9625, 0.0125):
        # 0.025 log 2 + (0.9625 + 0.0125) 2 log 2
        (SoftBootstrap(), 1.975 * LOG2),
        # 0.2 of the first class, which is predicted, and 0.8 of the second: 0.2 log 2 + 0.8 * 2 log 2
        (HardBootstrap(), 1.8 * LOG2),
        # (1 - sqrt(1/4)) / (1/2)
        (GeneralizedCrossEntropy(0.5), 1.0),
        # 1 - 1/4
        (GeneralizedCrossEntropy(1.0), 0.75),
        # (1 - 4^-0.7) / 0.7 with 4^-0.7 = 2^-1.4 = 0.378929
        (GeneralizedCrossEntropy(), 0.887244),
    ],
)
def test_examples_worked_by_hand(loss, expected):
    assert loss(SCORES, LABELS).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # Half of the first class, half of the third: the mean of log 2 and 2 log 2
        (CrossEntropy(), 1.5 * LOG2),
        # 0.9 of that, and 0.1 of the mean (1 + 2 + 2) / 3 log 2
        (LabelSmoothing(0.1), (1.35 + 0.5 / 3) * LOG2),
        # 0.95 of that, and 0.05 of the entropy 1/2 log 2 + 1/2 * 2 log 2
        (SoftBootstrap(), 1.5 * LOG2),
        # 0.8 of that, and 0.2 of log 2
        (HardBootstrap(), 1.4 * LOG2),
        # The mean of 1/2 and 3/4
        (GeneralizedCrossEntropy(1.0), 0.625),
    ],
)
def test_examples_with_shares_of_classes_worked_by_hand(loss, expected):
    shares = torch.tensor([[0.5, 0.0, 0.5]], dtype=torch.float64)
    assert loss(SCORES, shares).item() == pytest.approx(expected, rel=1e-6)


@every_loss
def test_shares_of_one_class_are_that_class(loss):
    scores, labels = some_batch()
    torch.testing.assert_close(loss(scores, labels), loss(scores, F.one_hot(labels, 4).double()))


@every_loss
@given(seed=st.integers(0, 10**6), lam=st.floats(0, 1))
def test_mixing_labels_mixes_losses(loss, seed, lam):
    # So it does not matter whether targets are mixed or two losses are.
    scores, labels = some_batch(seed)
    one, other = F.one_hot(labels, 4).double(), F.one_hot(labels.roll(1), 4).double()
    mixed = loss(scores, lam * one + (1 - lam) * other)
    torch.testing.assert_close(mixed, lam * loss(scores, one) + (1 - lam) * loss(scores, other))


@every_loss
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([0.0, 1.0, 30.0, 1e4]))
def test_losses_are_finite_not_negative_and_the_mean_over_images(loss, seed, scale):
    scores, labels = some_batch(seed, scale=scale)
    value = loss(scores, labels)
    assert torch.isfinite(value)
    assert value >= 0
    alone = torch.stack([loss(scores[i : i + 1], labels[i : i + 1]) for i in range(len(labels))])
    torch.testing.assert_close(value, alone.mean())


@every_loss
def test_adding_a_number_to_all_scores_of_an_image_changes_nothing(loss):
    scores, labels = some_batch()
    torch.testing.assert_close(loss(scores + 100, labels), loss(scores, labels))


@every_loss
@pytest.mark.parametrize("soft", [False, True])
def test_gradients_are_those_of_finite_differences(loss, soft):
    scores, labels = some_batch(scale=1.0)
    given_labels = 0.3 * F.one_hot(labels, 4).double() + 0.175 if soft else labels
    assert torch.autograd.gradcheck(lambda s: loss(s, given_labels), scores.requires_grad_())


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("label", [0, 1])
def test_scores_beyond_the_range_of_exp_are_no_trouble(loss, dtype, label):
    scores = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 1e4]], dtype=dtype, requires_grad=True)
    value = loss(scores, torch.full((2,), label))
    value.backward()
    assert torch.isfinite(value)
    assert bool(torch.isfinite(scores.grad).all())


@every_loss
def test_being_right_beyond_doubt_costs_nothing_but_smoothing(loss):
    value = loss(torch.tensor([[1e4, 0.0, 0.0]]), torch.tensor([0])).item()
    # Smoothing wants 0.1/3 of each of the other two classes: 2 * 0.1/3 * 1e4
    assert value == pytest.approx(2e3 / 3 if isinstance(loss, LabelSmoothing) else 0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_loss
def test_scores_of_low_precision_lose_no_more_than_they_must(loss, dtype):
    scores, labels = (each.to(dtype) if each.is_floating_point() else each for each in some_batch())
    torch.testing.assert_close(loss(scores, labels).float(), loss(scores.float(), labels), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    "same",
    [
        LabelSmoothing(0.0),
        SoftBootstrap(1.0),
        HardBootstrap(1.0),
        pytest.param(GeneralizedCrossEntropy(1e-9), id="q -> 0"),
    ],
)
@given(seed=st.integers(0, 10**6))
def test_the_limits_are_cross_entropy(same, seed):
    scores, labels = some_batch(seed)
    torch.testing.assert_close(same(scores, labels), F.cross_entropy(scores, labels))


def test_cross_entropy_is_torchs_bit_for_bit():
    scores, labels = some_batch()
    assert torch.equal(CrossEntropy()(scores, labels), F.cross_entropy(scores, labels))


def test_generalized_cross_entropy_is_bounded_where_cross_entropy_is_not():
    absurd = torch.tensor([[1e4, -1e4]])
    assert GeneralizedCrossEntropy()(absurd, torch.tensor([1])).item() == pytest.approx(1 / 0.7)
    assert CrossEntropy()(absurd, torch.tensor([1])).item() == pytest.approx(2e4)


def test_soft_bootstrapping_learns_from_its_own_doubt():
    # d/ds of 0.05 * entropy is part of the gradient: at a constant target it would not be.
    scores = SCORES.clone().requires_grad_()
    SoftBootstrap()(scores, LABELS).backward()
    p = SCORES.softmax(1)
    entropy = -(p * p.log()).sum()
    expected = 0.95 * (p - torch.tensor([[0.0, 1.0, 0.0]])) - 0.05 * p * (p.log() + entropy)
    torch.testing.assert_close(scores.grad, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelSmoothing(1.0), "rate must lie in 0 .. 1, .*, got 1.0"),
        (lambda: LabelSmoothing(-0.1), "rate must lie in 0 .. 1, .*, got -0.1"),
        (lambda: SoftBootstrap(0.0), "label_share must be more than 0, .*, got 0.0"),
        (lambda: HardBootstrap(1.1), "label_share must be more than 0, .* at most 1, got 1.1"),
        (lambda: GeneralizedCrossEntropy(0.0), "q must be more than 0 .*, got 0.0; its limit at 0 is cross-entropy"),
        (lambda: GeneralizedCrossEntropy(1.5), "q must be more than 0 and at most 1, got 1.5"),
        (lambda: GeneralizedCrossEntropy("much"), "q must be a number, got 'much'"),
    ],
)
def test_settings_without_a_meaning_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()


def test_several_labels_count_alike_and_difficult_ones_not_at_all():
    # Scores of 0 cost log 2 each whatever the label; one of 10 at a label of 0 costs about 10.
    scores, labels = torch.tensor([[0.0, 10.0]]), torch.tensor([[1.0, 0.0]])
    assert multi_label_loss(scores, labels).item() == pytest.approx((LOG2 + 10) / 2, rel=1e-4)
    assert multi_label_loss(scores, labels, torch.tensor([[False, True]])).item() == pytest.approx(LOG2)
    assert multi_label_loss(scores, labels, torch.tensor([[True, True]])).item() == 0
