"""Auxiliary-image regularisation: the group norm by hand, and that nothing but the last layer moves."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.losses import AuxiliaryImages
from deepbilevel_lab.specs import SpecError
from tests.losses.tasks import never, task


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


def made(model, epoch, **settings):
    objective = AuxiliaryImages(**settings).make(task([0, 1], 2, network=model))
    objective.begin_epoch(epoch, never)
    return objective


def test_the_norm_of_every_answer_worked_by_hand():
    model = nn.Sequential(nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        model[0].bias.copy_(torch.tensor([0.0, -1.0]))
    images = torch.tensor([[1.0, 1.0], [0.0, 0.5]])  # answers (3, 4) and (0, 2), of lengths 5 and 2; scores 3, 3; 0, 1
    loss = made(model, 5, strength=0.1)(model, images, torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert loss.item() == pytest.approx((math.log(2) + math.log(1 + math.e)) / 2 + 0.1 * 3.5)


def test_only_the_last_layer_learns_after_the_warm_up():
    model = network().train()
    images, labels = torch.randn(8, 3), torch.arange(8) % 2
    before = {name: each.clone() for name, each in model.named_buffers()}
    made(model, 5)(model, images, labels, labels).backward()
    assert model.training
    assert [name for name, each in model.named_parameters() if each.grad is not None] == ["3.weight", "3.bias"]
    assert all(torch.equal(before[name], each) for name, each in model.named_buffers())


def test_features_are_those_of_evaluation_and_without_strength_the_loss_is_cross_entropy():
    model = network().train()
    images, labels = torch.randn(8, 3), torch.arange(8) % 2
    loss = made(model, 5, strength=0.0)(model, images, labels, labels)
    assert torch.equal(loss, F.cross_entropy(model.eval()(images), labels))


def test_the_warm_up_is_cross_entropy_of_the_whole_network():
    model = network().eval()
    images, labels = torch.randn(8, 3), torch.arange(8) % 2
    loss = made(model, 4)(model, images, labels, labels)
    assert torch.equal(loss, F.cross_entropy(model(images), labels))
    loss.backward()
    assert all(each.grad is not None for each in model.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up": 0.0}, "warm_up must be more than 0 and less than 1, got 0.0"),
        ({"strength": -1.0}, "strength must not be negative, got -1.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(SpecError, match=message):
        AuxiliaryImages(**settings)
