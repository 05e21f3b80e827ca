"""Initial values: moments and bounds of what is drawn."""

import pytest
import torch
from torch import nn

from deepbilevel_lab.networks.layers import fill_he_normal, fill_normal, fill_truncated_normal


def test_nothing_lies_beyond_two_standard_deviations_of_a_truncated_normal():
    layer = nn.Linear(1000, 300)
    fill_truncated_normal(layer, std=0.04, bias=0.1)
    assert layer.weight.abs().max() <= 0.08
    assert layer.weight.abs().max() > 0.0799
    # The standard deviation of a normal distribution cut at two: 0.8796.
    assert layer.weight.std().item() == pytest.approx(0.8796 * 0.04, rel=0.01)
    assert layer.weight.mean().item() == pytest.approx(0, abs=0.0005)
    assert torch.equal(layer.bias, torch.full((300,), 0.1))


def test_a_normal_has_tails():
    layer = nn.Conv2d(50, 100, 5)
    fill_normal(layer, std=0.01, bias=-1.0)
    assert layer.weight.std().item() == pytest.approx(0.01, rel=0.01)
    assert layer.weight.abs().max() > 0.035
    assert torch.equal(layer.bias, torch.full((100,), -1.0))


@pytest.mark.parametrize(("layer", "fan_in"), [(nn.Conv2d(48, 200, 3), 48 * 9), (nn.Linear(336, 500), 336)])
def test_he_keeps_two_over_the_number_of_inputs(layer, fan_in):
    fill_he_normal(layer)
    assert layer.weight.var().item() == pytest.approx(2 / fan_in, rel=0.03)
    assert not layer.bias.any()


def test_layers_without_bias_are_welcome():
    fill_he_normal(nn.Conv2d(3, 4, 3, bias=False))
    fill_normal(nn.Conv2d(3, 4, 3, bias=False), std=0.1, bias=1.0)
