"""The network of the demo: its size, its shapes, and that all of it learns."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.networks import digit_cnn


@pytest.mark.parametrize(("num_classes", "expected"), [(10, 71_754), (2, 70_722)])
def test_it_has_the_documented_number_of_parameters(num_classes, expected):
    assert sum(parameter.numel() for parameter in digit_cnn(num_classes).parameters()) == expected


@pytest.mark.parametrize("num_images", [1, 7])
@pytest.mark.parametrize("num_classes", [10, 3])
def test_it_maps_8x8_images_to_one_score_per_class(num_images, num_classes):
    assert digit_cnn(num_classes)(torch.rand(num_images, 1, 8, 8)).shape == (num_images, num_classes)


def test_the_gradient_reaches_every_parameter():
    network = digit_cnn()
    F.cross_entropy(network(torch.rand(32, 1, 8, 8)), torch.arange(32) % 10).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_images_do_not_influence_each_other():
    network = digit_cnn().eval().double()  # batches of another size add up in another order, which float64 hardly shows
    images = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    one_by_one = torch.cat([network(image[None]) for image in images])
    torch.testing.assert_close(network(images), one_by_one)


def test_only_training_drops_activations():
    network, images = digit_cnn(), torch.rand(4, 1, 8, 8)
    assert not torch.equal(network(images), network(images))
    network.eval()
    assert torch.equal(network(images), network(images))


def test_there_is_no_batch_norm():
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in digit_cnn().modules())
