"""Early-learning regularisation: two visits of two images worked by hand, its limit, and what it does to gradients."""

import math

import pytest
import torch
from torch.nn import functional as F

from deepbilevel_lab.losses import EarlyLearning
from deepbilevel_lab.specs import SpecError
from tests.losses.tasks import Shown, scores_of, task


def test_two_visits_worked_by_hand():
    objective = EarlyLearning(strength=2.0, memory=0.5).make(task([0, 1, 0], 2)).double()
    model, labels = Shown().double(), torch.tensor([0, 1])
    # Images 2 and 1; t starts at nothing: t = p / 2, <p, t> = (0.64 + 0.04) / 2 = 0.34 and (0.25 + 0.25) / 2 = 0.25
    loss = objective(model, scores_of([0.8, 0.2], [0.5, 0.5]), labels, torch.tensor([2, 1]))
    entropy = -(math.log(0.8) + math.log(0.5)) / 2
    assert loss.item() == pytest.approx(entropy + (math.log(0.66) + math.log(0.75)))
    # Image 2 again: t = (0.4, 0.1) / 2 + (0.6, 0.4) / 2 = (0.5, 0.25); <p, t> = 0.3 + 0.1
    loss = objective(model, scores_of([0.6, 0.4]), torch.tensor([0]), torch.tensor([2]))
    assert loss.item() == pytest.approx(-math.log(0.6) + 2 * math.log(0.6))
    expected = torch.tensor([[0.0, 0.0], [0.25, 0.25], [0.5, 0.25]], dtype=torch.float64)
    torch.testing.assert_close(objective.targets, expected)


def test_without_strength_it_is_cross_entropy_bit_for_bit():
    scores, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 3, 0])
    objective = EarlyLearning(strength=0.0).make(task(labels, 4))
    assert torch.equal(objective(Shown(), scores, labels, torch.arange(5)), F.cross_entropy(scores, labels))


def test_the_gradient_is_that_of_the_authors_at_a_constant_memory():
    # d/ds of log(1 - <p, t>) = -p (t - <p, t>) / (1 - <p, t>), with t a constant
    objective = EarlyLearning(strength=3.0).make(task([1], 3)).double()
    scores = scores_of([0.5, 0.3, 0.2]).requires_grad_()
    objective(Shown().double(), scores, torch.tensor([1]), torch.tensor([0])).backward()
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    t = 0.3 * p
    expected = p - torch.tensor([0.0, 1.0, 0.0]) - 3 * p * (t - p @ t) / (1 - p @ t)
    torch.testing.assert_close(scores.grad[0], expected)


@pytest.mark.parametrize("memory", [0.0, 0.7])
def test_certainty_is_no_trouble(memory):
    objective = EarlyLearning(memory=memory).make(task([0, 1], 2))
    scores = torch.tensor([[1e4, -1e4], [1e4, -1e4]], requires_grad=True)
    for _ in range(50):
        loss = objective(Shown(), scores, torch.tensor([0, 1]), torch.tensor([0, 1]))
    loss.backward()
    assert torch.isfinite(loss)
    assert bool(torch.isfinite(scores.grad).all())
    torch.testing.assert_close(objective.targets.sum(1), torch.ones(2))


def test_scores_of_low_precision_are_remembered_in_full():
    class Low(Shown):
        def forward(self, scores):
            return super().forward(scores).bfloat16()

    objective = EarlyLearning().make(task([0], 3))
    scores = torch.tensor([[1.0, 2.0, 4.0]])  # exact in bfloat16, unlike their probabilities
    loss = objective(Low(), scores, torch.tensor([0]), torch.tensor([0]))
    assert loss.dtype == torch.float32
    torch.testing.assert_close(objective.targets, 0.3 * scores.softmax(1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strength": -1.0}, "strength must not be negative, got -1.0"),
        ({"memory": 1.0}, "memory must be at least 0 and less than 1, got 1.0"),
        ({"memory": "long"}, "memory must be a number, got 'long'"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(SpecError, match=message):
        EarlyLearning(**settings)
