"""The noise layer: all its forms worked by hand, its start at the confusions, and what stays of cross-entropy."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.losses import NoiseLayer
from tests.losses.tasks import Shown, never, scores_of, task

ONE, NUMBER = torch.tensor([1]), torch.tensor([0])


class Shallow(nn.Module):
    """Features are the images, scores a linear layer's."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 2, bias=False)
        with torch.no_grad():
            self.last.weight.copy_(torch.eye(2))

    def forward(self, images):
        return self.last(images)


def started(predicted=((1.0, 0.0), (0.0, 1.0)), labels=(0, 1), network=None, **settings):
    """Return a layer at its start, after networks predicted that for images with these labels."""
    given = task(labels, 2, network=network)
    objective = NoiseLayer(**settings).make(given).double()
    objective.begin_epoch(5, lambda: torch.tensor(predicted, dtype=torch.float64))
    return objective


def test_the_layer_starts_at_the_confusions_and_makes_predictions_noisy():
    # Where the network sees class 0 (1 + 1/2 + 1/2 images) 1 + 1/2 carry label 0, where it sees class 1 half of them:
    # T = (3/4, 1/4), (1/2, 1/2)
    objective = started(((1.0, 0.0), (0.5, 0.5), (0.5, 0.5)), (0, 0, 1))
    expected = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64)
    torch.testing.assert_close(objective.noise.detach().view(2, 2).softmax(1), expected)
    loss = objective(Shown().double(), scores_of([0.6, 0.4]), ONE, NUMBER)
    assert loss.item() == pytest.approx(-math.log(0.6 * 0.25 + 0.4 * 0.5))


def test_network_and_layer_learn_together():
    objective, scores = started(((0.9, 0.1), (0.2, 0.8))), scores_of([0.6, 0.4]).requires_grad_()
    objective(Shown().double(), scores, ONE, NUMBER).backward()
    t = objective.noise.detach().view(2, 2).softmax(1)
    p, noisy = torch.tensor([0.6, 0.4], dtype=torch.float64), 0.6 * t[0, 1] + 0.4 * t[1, 1]
    # d/dB_ij of -log sum_i p_i T_iy = -p_i T_iy ([j = y] - T_ij) / noisy
    expected = -(p * t[:, 1])[:, None] * (torch.tensor([0.0, 1.0]) - t) / noisy
    torch.testing.assert_close(objective.noise.grad.view(2, 2), expected)
    torch.testing.assert_close(scores.grad[0], p - p * t[:, 1] / noisy)


def test_rows_may_depend_on_features():
    # T_01 = softmax(u_0 . h + b_0)_1: with u_01 = (log 3, 0), h = (1, 0) and b the same for both: 3 / (1 + 3)
    network = Shallow().double()
    objective = started(((0.5, 0.5), (0.5, 0.5)), network=network, depends_on="features")
    with torch.no_grad():
        objective.weight[1] = torch.tensor([math.log(3), 0.0])
    image = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    p = image.softmax(1)[0]
    loss = objective(network, image, ONE, NUMBER)
    assert loss.item() == pytest.approx(-math.log(p[0] * 0.75 + p[1] * 0.5))
    loss.backward()
    assert objective.weight.grad[:2].abs().sum() > 0
    assert network.last.weight.grad is not None


def test_features_start_without_a_say():
    network, image = Shallow().double(), torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    predicted = ((0.9, 0.1), (0.2, 0.8))
    of_label, of_features = (started(predicted, network=network, depends_on=on) for on in ("label", "features"))
    torch.testing.assert_close(of_label(network, image, ONE, NUMBER), of_features(network, image, ONE, NUMBER))


def test_a_matrix_that_is_trained_itself_starts_as_nothing_and_stays_probabilities():
    objective = started(linear=True, decay=0.2)
    loss = objective(Shown().double(), scores_of([0.6, 0.4]), ONE, NUMBER)
    assert loss.item() == pytest.approx(-math.log(0.4) + 0.1)  # identity: |T_i| = 1
    with torch.no_grad():
        objective.transition += torch.tensor([0.5, -0.25, 0.25, 0.25])  # (1.5, -0.25), (0.25, 1.25)
    # The nearest probabilities are (1, 0) and (0, 1): what is taken off is the same for both entries while they last.
    objective(Shown().double(), scores_of([0.6, 0.4]), ONE, NUMBER)
    torch.testing.assert_close(objective.transition.detach(), torch.tensor([1.0, 0.0, 0.0, 1.0]).double())


def test_a_matrix_that_is_trained_itself_learns_at_a_hundredth_of_the_pace():
    # d/dT_iy of -log(sum_i p_i T_iy) = -p_i / noisy, and of decay / 2 * mean_i |T_i|^2 = decay T_ij / C
    objective = started(linear=True, decay=0.2)
    objective(Shown().double(), scores_of([0.6, 0.4]), ONE, NUMBER).backward()
    expected = 0.01 * torch.tensor([[0.1, -0.6 / 0.4], [0.0, 0.1 - 1.0]], dtype=torch.float64)
    torch.testing.assert_close(objective.transition.grad.view(2, 2), expected)


def test_dropout_leaves_out_entries_of_the_prediction():
    objective = started(((1.0, 0.0), (0.0, 1.0)), (0, 1), dropout=0.5)
    with torch.no_grad():
        objective.noise.zero_()  # T_ij = 1/2
    torch.manual_seed(0)
    seen = {
        round(objective(Shown().double(), scores_of([0.75, 0.25]), ONE, NUMBER).exp().reciprocal().item(), 4)
        for _ in range(50)
    }
    # Both entries kept and doubled; one of them; none, and then a millionth of them in its place.
    assert seen == {1.0, 0.75, 0.25, 0.0}
    objective.eval()
    loss = objective(Shown().double(), scores_of([0.75, 0.25]), ONE, NUMBER)
    assert loss.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("settings", [{}, {"linear": True}, {"dropout": 0.5}])
def test_the_warm_up_is_cross_entropy_bit_for_bit(settings):
    objective = NoiseLayer(warm_up=0.3, **settings).make(task([0, 1], 2))
    scores, labels = torch.randn(2, 2), torch.tensor([0, 1])
    for epoch in range(3):
        objective.begin_epoch(epoch, never)
        assert torch.equal(objective(Shown(), scores, labels, labels), F.cross_entropy(scores, labels))


@pytest.mark.parametrize("settings", [{}, {"linear": True, "decay": 0.0}])
def test_where_labels_are_what_is_predicted_it_is_cross_entropy(settings):
    scores, labels = torch.randn(4, 2).double(), torch.tensor([0, 1, 1, 0])
    loss = started(**settings)(Shown().double(), scores, labels, labels)
    torch.testing.assert_close(loss, F.cross_entropy(scores, labels), rtol=1e-4, atol=1e-4)


def test_weight_decay_leaves_the_noise_alone():
    for settings in ({}, {"linear": True}):
        assert [parameter.ndim for parameter in NoiseLayer(**settings).make(task([0], 2)).parameters()] == [1]


def test_a_network_that_does_not_end_with_a_layer_of_its_classes_is_refused():
    with pytest.raises(ValueError, match=r"last linear layer is not there, expected one that gives 2 scores"):
        NoiseLayer(depends_on="features").make(task([0], 2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up": 1.0}, "warm_up must be more than 0 and less than 1, got 1.0"),
        ({"dropout": 1.0}, "dropout must be at least 0 and less than 1, got 1.0"),
        ({"decay": -0.1}, "decay must not be negative, got -0.1"),
        ({"linear": True, "depends_on": "features"}, "linear trains one matrix for all images, so depends_on must be"),
        ({"depends_on": "feature"}, "unknown value of depends_on 'feature'; did you mean 'features'"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        NoiseLayer(**settings)
