"""PreAct ResNet-18: size, and the two details that are the mixup code's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.networks import preact_resnet18
from deepbilevel_lab.networks.preact_resnet import PreActBlock


@pytest.mark.parametrize(("num_classes", "expected"), [(10, 11_171_274), (100, 11_217_444)])
def test_it_has_the_published_number_of_parameters(num_classes, expected):
    assert sum(parameter.numel() for parameter in preact_resnet18(num_classes).parameters()) == expected


def test_an_identity_shortcut_carries_the_activated_tensor():
    block = PreActBlock(4, 4, stride=1)
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 6, 6)
    assert torch.equal(block(x), F.relu(block.bn1(x)))


@pytest.mark.parametrize(("channels", "stride"), [(8, 1), (4, 2), (8, 2)])
def test_a_projected_shortcut_carries_the_activated_tensor(channels, stride):
    block = PreActBlock(4, channels, stride).double()
    nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 6, 6, dtype=torch.float64)
    expected = F.conv2d(F.relu(block.bn1(x)), block.shortcut.weight, stride=stride)
    torch.testing.assert_close(block(x), expected)


def test_the_second_convolution_sees_normalised_and_rectified_maps():
    block = PreActBlock(4, 4, stride=1)
    seen = []
    block.conv2.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    block.bn2.register_forward_hook(lambda _, __, out: seen.append(out))
    block(torch.randn(2, 4, 6, 6))
    assert torch.equal(seen[1], F.relu(seen[0]))


def test_stages_halve_the_map_and_double_the_channels():
    network = preact_resnet18()
    x = network.stem(torch.randn(2, 3, 32, 32))
    shapes = [tuple(x.shape[1:])]
    for stage in network.stages:
        assert len(stage) == 2
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(64, 32, 32), (64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]


def test_the_stem_ends_with_a_relu_and_the_pool_sees_the_last_block_as_it_is():
    network = preact_resnet18().double()  # float64: another way to pool is no more than another order of sums
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert (network.stem(images) >= 0).all()
    last = network.eval().stages(network.stem(images))
    assert (last < 0).any()
    torch.testing.assert_close(network(images), network.fc(F.avg_pool2d(last, 4).flatten(1)))


def test_batch_norm_has_torchs_settings():
    norms = [module for module in preact_resnet18().modules() if isinstance(module, nn.BatchNorm2d)]
    assert len(norms) == 1 + 8 * 2
    assert {(norm.eps, norm.momentum, norm.affine) for norm in norms} == {(1e-5, 0.1, True)}


def test_dropout_stands_before_the_last_layer_and_is_off_unless_told():
    network = preact_resnet18().train()
    seen = []
    network.fc.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    images = torch.randn(2, 3, 32, 32)
    state = torch.get_rng_state()
    network(images)
    assert torch.equal(torch.get_rng_state(), state)  # nothing is drawn: runs without dropout stay what they were
    network.dropout.p = 0.7
    network(images)
    dropped = seen[1] == 0
    assert not (seen[0] == 0).any()
    assert 0.6 < dropped.float().mean() < 0.8
    torch.testing.assert_close(seen[1][~dropped], seen[0][~dropped] / 0.3)
