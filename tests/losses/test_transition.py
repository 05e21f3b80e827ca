"""Corrected losses: Natarajan's two classes by hand, unbiasedness, anchors, warm-up, and what has no inverse."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from deepbilevel_lab.losses import BackwardCorrection, ForwardCorrection
from deepbilevel_lab.losses.transition import estimate_transition
from deepbilevel_lab.specs import SpecError
from tests.losses.tasks import Shown, never, scores_of, task

BOTH = pytest.mark.parametrize("kind", [ForwardCorrection, BackwardCorrection])
IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def corrected(kind, transition):
    objective = kind(transition=transition).make(task([0], len(transition))).double()
    objective.begin_epoch(0, never)
    return objective


def test_natarajans_two_classes_worked_by_hand():
    # Class 0 is labelled 1 with rate a = 0.2, class 1 is labelled 0 with rate b = 0.4. His unbiased loss of label 0 is
    # ((1 - b) l(0) - a l(1)) / (1 - a - b), of label 1 ((1 - a) l(1) - b l(0)) / (1 - a - b).
    scores = scores_of([0.75, 0.25])
    costs = -math.log(0.75), -math.log(0.25)
    objective = corrected(BackwardCorrection, ((0.8, 0.2), (0.4, 0.6)))
    losses = [objective(Shown().double(), scores, torch.tensor([label]), torch.tensor([0])).item() for label in (0, 1)]
    assert losses[0] == pytest.approx((0.6 * costs[0] - 0.2 * costs[1]) / 0.4)
    assert losses[1] == pytest.approx((0.8 * costs[1] - 0.4 * costs[0]) / 0.4)
    # On average over noisy labels nothing is left of the noise.
    assert 0.8 * losses[0] + 0.2 * losses[1] == pytest.approx(costs[0])
    assert 0.4 * losses[0] + 0.6 * losses[1] == pytest.approx(costs[1])


@given(seed=st.integers(0, 10**6))
def test_backward_correction_is_unbiased_whatever_the_prediction(seed):
    generator = torch.Generator().manual_seed(seed)
    transition = torch.rand(4, 4, generator=generator, dtype=torch.float64) + 3 * torch.eye(4)
    transition /= transition.sum(1, keepdim=True)
    scores = torch.randn(1, 4, generator=generator, dtype=torch.float64)
    objective = corrected(BackwardCorrection, tuple(map(tuple, transition.tolist())))
    labels = torch.arange(4)
    losses = torch.stack([objective(Shown().double(), scores, labels[y : y + 1], labels[:1]) for y in range(4)])
    torch.testing.assert_close(
        transition @ losses.detach(), F.cross_entropy(scores.expand(4, 4), labels, reduction="none")
    )


def test_forward_correction_worked_by_hand():
    # Label 1 comes from class 0 with 0.2 and from class 1 with 0.6: 0.75 * 0.2 + 0.25 * 0.6 = 0.3
    objective = corrected(ForwardCorrection, ((0.8, 0.2), (0.4, 0.6)))
    loss = objective(Shown().double(), scores_of([0.75, 0.25]), torch.tensor([1]), torch.tensor([0]))
    assert loss.item() == pytest.approx(-math.log(0.3))


@BOTH
def test_without_noise_nothing_is_corrected(kind):
    scores, labels = torch.randn(6, 3).double(), torch.arange(6) % 3
    objective = corrected(kind, IDENTITY)
    torch.testing.assert_close(objective(Shown().double(), scores, labels, labels), F.cross_entropy(scores, labels))


@BOTH
def test_scores_beyond_the_range_of_exp_are_no_trouble(kind):
    scores = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], dtype=torch.float64, requires_grad=True)
    for transition in (((1.0, 0.0), (0.0, 1.0)), ((0.8, 0.2), (0.4, 0.6))):
        loss = corrected(kind, transition)(Shown().double(), scores, torch.tensor([1, 1]), torch.tensor([0, 0]))
        loss.backward()
        assert torch.isfinite(loss)
        assert bool(torch.isfinite(scores.grad).all())


def test_the_backward_loss_has_a_lower_bound():
    # Label 0 takes away 0.2 / 0.4 of the loss of class 1, which is -log 1e-7 at the most.
    objective = corrected(BackwardCorrection, ((0.8, 0.2), (0.4, 0.6)))
    sure = torch.tensor([[1e3, -1e3]], dtype=torch.float64)
    loss = objective(Shown().double(), sure, torch.tensor([0]), torch.tensor([0]))
    assert loss.item() == pytest.approx(0.5 * math.log(1e-7))


def test_anchors_are_sure_members_of_their_class_but_not_the_surest():
    p = torch.linspace(0.01, 0.99, 101)
    probabilities = torch.stack([p, 1 - p], dim=1)
    # The 97th percentile of 101 evenly spaced ones is the 98th: the largest below it is the 97th.
    expected = torch.stack([probabilities[96], probabilities[4]])
    torch.testing.assert_close(estimate_transition(probabilities, 97.0), expected)
    torch.testing.assert_close(estimate_transition(probabilities, 100.0), probabilities[[100, 0]])


def test_where_all_images_are_alike_one_is_taken():
    alike = torch.tensor([[0.7, 0.3]]).expand(5, 2)
    torch.testing.assert_close(estimate_transition(alike, 97.0), alike[:2])


@BOTH
def test_the_same_network_warms_up_and_goes_on_with_what_it_saw(kind):
    objective = kind(warm_up=0.3, percentile=100.0).make(task([0, 1, 0], 2))
    scores, labels = torch.randn(3, 2), torch.tensor([0, 1, 0])
    predicted = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]])
    for epoch in range(3):
        objective.begin_epoch(epoch, never)
        assert torch.equal(objective(Shown(), scores, labels, labels), F.cross_entropy(scores, labels))
    objective.begin_epoch(3, lambda: predicted)
    torch.testing.assert_close(objective.transition, predicted[:2])
    later = kind(transition=((0.8, 0.2), (0.4, 0.6))).make(task([0, 1, 0], 2))
    later.begin_epoch(0, never)
    loss = objective(Shown(), scores, labels, labels)
    torch.testing.assert_close(loss, later(Shown(), scores, labels, labels))
    assert not torch.equal(loss, F.cross_entropy(scores, labels))
    objective.begin_epoch(4, never)  # T is estimated once


@BOTH
def test_rows_are_scaled_to_probabilities(kind):
    torch.testing.assert_close(
        corrected(kind, ((8.0, 2.0), (1.0, 1.0))).transition, torch.tensor([[0.8, 0.2], [0.5, 0.5]]).double()
    )


def test_an_estimate_without_an_inverse_is_told_and_undone_as_far_as_it_can_be():
    objective = BackwardCorrection(warm_up=0.1).make(task([0, 1], 3))
    alike = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    with pytest.warns(UserWarning, match="almost no inverse: 1 of 3 directions"):
        objective.begin_epoch(1, lambda: alike)
    assert bool(torch.isfinite(objective.inverse).all())
    assert objective.inverse.abs().max() < 10


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (ForwardCorrection, {"warm_up": 0.0}, "warm_up must be more than 0 and less than 1, got 0.0"),
        (BackwardCorrection, {"percentile": 0.0}, "percentile must be more than 0 and at most 100, got 0.0"),
        (ForwardCorrection, {"transition": ((1.0, 0.0),)}, "as many columns as rows, .* got 1 rows of .2."),
        (
            ForwardCorrection,
            {"transition": ((1.0, 0.0), (-0.5, 1.5))},
            "must hold probabilities, got row 1: .-0.5",
        ),
        (ForwardCorrection, {"transition": ((1.0, 0.0), (1.0, 0.0))}, "no class is ever labelled 1"),
        (BackwardCorrection, {"transition": ((0.5, 0.5), (0.5, 0.5))}, "no inverse.*take loss forward-correction"),
        (ForwardCorrection, {"transition": "known"}, "transition must be a list, got 'known'"),
    ],
)
def test_settings_without_a_meaning_are_refused(kind, settings, message):
    with pytest.raises(SpecError, match=message):
        kind(**settings)


@BOTH
def test_a_matrix_for_other_classes_is_refused(kind):
    with pytest.raises(SpecError, match=r"loss\.transition has 3 rows, but the data has 10 classes"):
        kind(transition=IDENTITY).make(task([0], 10))


@BOTH
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_run_must_leave_epochs_on_both_sides(kind, epochs):
    kind(transition=IDENTITY).check_epochs(1)
    kind(warm_up=0.5).check_epochs(2)
    with pytest.raises(SpecError, match=rf"loss.warm_up 0.9 of epochs {epochs} is {epochs}; take more epochs"):
        kind(warm_up=0.9).check_epochs(epochs)
