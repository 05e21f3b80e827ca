"""BatchNorm with a shift and no scale: its settings, its values and its gradients."""

import pytest
import torch
from torch import nn

from deepbilevel_lab.networks.layers import ShiftBatchNorm2d


def test_the_shift_is_the_only_parameter():
    layer = ShiftBatchNorm2d(5)
    assert [name for name, _ in layer.named_parameters()] == ["bias"]
    assert set(layer.state_dict()) == {"bias", "running_mean", "running_var", "num_batches_tracked"}
    assert (layer.eps, layer.momentum) == (1e-3, 0.025)
    assert not layer.bias.any()


def test_it_counts_as_batch_norm():
    assert isinstance(ShiftBatchNorm2d(5), nn.modules.batchnorm._BatchNorm)


@pytest.mark.parametrize("training", [True, False])
def test_it_is_batch_norm_whose_scale_is_one(training):
    layer = ShiftBatchNorm2d(5).train(training)
    reference = nn.BatchNorm2d(5, eps=1e-3, momentum=0.025).train(training)
    for norm in (layer, reference):
        nn.init.uniform_(norm.running_mean, -1, 1, generator=torch.Generator().manual_seed(1))
        nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(2))
    x = torch.randn(4, 5, 3, 3)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    direction = torch.randn_like(x)
    outs = [norm(own) for norm, own in zip((layer, reference), inputs, strict=True)]
    for out in outs:
        out.backward(direction)
    torch.testing.assert_close(outs[0], outs[1])
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    torch.testing.assert_close(layer.bias.grad, reference.bias.grad)
    torch.testing.assert_close(layer.running_mean, reference.running_mean)
    torch.testing.assert_close(layer.running_var, reference.running_var)


def test_a_forward_pass_moves_the_running_statistics_by_a_fortieth():
    layer = ShiftBatchNorm2d(1)
    x = torch.tensor([1.0, 3.0]).reshape(2, 1, 1, 1)
    layer(x)
    # Mean 2, variance 2 (with n - 1), from 0 and 1.
    torch.testing.assert_close(layer.running_mean, torch.tensor([0.05]))
    torch.testing.assert_close(layer.running_var, torch.tensor([1.025]))
    assert layer.num_batches_tracked == 1


def test_it_can_be_reset():
    layer = ShiftBatchNorm2d(2)
    layer(torch.randn(4, 2, 3, 3))
    nn.init.ones_(layer.bias)
    layer.reset_parameters()
    assert not layer.bias.any()
    assert not layer.running_mean.any()
    assert torch.equal(layer.running_var, torch.ones(2))
