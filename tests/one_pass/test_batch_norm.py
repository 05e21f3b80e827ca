"""BatchNorm in one pass: each mini-batch by its own statistics, whatever its layout and its precision."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel import Bilevel
from tests.one_pass.test_one_pass import K, assert_same, cross_entropy_of, group_of, in_two_ways


class Sequence(nn.Module):
    """The usual way to normalise a sequence: the features of all positions, seen from the side."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(16, 5), nn.BatchNorm1d(5), nn.Linear(15, 2)

    def forward(self, x):
        return self.head(self.norm(self.layer(x.flatten(2)).transpose(1, 2)).flatten(1))


class SomeChannels(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Conv2d(3, 5, 3), nn.BatchNorm2d(3), nn.Linear(12, 2)

    def forward(self, x):
        return self.head(self.norm(self.layer(x)[:, 1:4]).flatten(1))


class FlattenedPixels(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.head = nn.Conv2d(3, 5, 3), nn.BatchNorm1d(5), nn.Linear(20, 2)

    def forward(self, x):
        return self.head(self.norm(self.layer(x).contiguous(memory_format=torch.channels_last).flatten(2)).flatten(1))


class ByName(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(48, 2)

    def forward(self, x):
        settings = {"training": True, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False}
        nothing = dict.fromkeys(("weight", "bias", "running_mean", "running_var"))
        return self.head(torch.batch_norm(input=x.transpose(2, 3), **nothing, **settings).flatten(1))


@pytest.mark.parametrize("samples_per_pass", [1, 6, None])
@pytest.mark.parametrize("kind", [Sequence, SomeChannels, FlattenedPixels, ByName])
def test_batch_normalisation_may_get_any_layout(kind, samples_per_pass):
    assert_same(kind().double(), group_of(3, 4, 4), samples_per_pass=samples_per_pass)


def test_batch_normalisation_that_is_evaluated_uses_its_running_statistics():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).double()
    model[1].eval()
    assert_same(model, group_of(3, 4, 4))
    assert model[1].running_mean.eq(0).all()


def test_a_mini_batch_with_one_number_per_channel_cannot_be_normalised():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()
    with pytest.raises(ValueError, match=r"one number per channel, in a mini-batch of shape \(1, 5\)"):
        Bilevel(model, num_batches=K).step_at_once(group_of(3, 4, 4, sizes=(2, 2, 1, 2)), cross_entropy_of(model))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_autocast_around_batch_normalisation_gives_the_same_but_for_rounding():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    group = [(x.float(), y) for x, y in group_of(3, 4, 4, sizes=(6,) * K)]

    def criterion(x, y, **how):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x), y, **how)

    (gradient, _), (own_gradient, _) = in_two_ways(model, group, criterion=criterion)
    assert (own_gradient - gradient).norm() < 0.1 * gradient.norm()
