"""CifarNet: size, order of layers, initial values."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.networks import cifarnet


@pytest.mark.parametrize(("num_classes", "expected"), [(10, 1_387_786), (100, 1_405_156)])
def test_it_has_the_published_number_of_parameters(num_classes, expected):
    assert sum(parameter.numel() for parameter in cifarnet(num_classes).parameters()) == expected


def test_it_is_the_textbook_network():
    """The layers in the order of the paper, from torch's own parts alone."""
    network = cifarnet().eval().double()  # in float64, a layer out of place shows and the order of sums does not
    norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
    images = torch.randn(4, 3, 28, 28, dtype=torch.float64)
    x = F.relu(F.conv2d(images, network.conv1.weight, network.conv1.bias, padding=2))
    x = norm(F.max_pool2d(x, 2, 2))
    x = F.relu(F.conv2d(x, network.conv2.weight, network.conv2.bias, padding=2))
    x = F.max_pool2d(norm(x), 2, 2)
    x = F.relu(F.linear(x.flatten(1), network.fc1.weight, network.fc1.bias))
    x = F.relu(F.linear(x, network.fc2.weight, network.fc2.bias))
    expected = F.linear(x, network.fc3.weight, network.fc3.bias)
    torch.testing.assert_close(network(images), expected)


@pytest.mark.parametrize(
    ("layer", "std", "bias"),
    [("conv1", 0.05, 0), ("conv2", 0.05, 0.1), ("fc1", 0.04, 0.1), ("fc2", 0.04, 0.1), ("fc3", 1 / 192, 0)],
)
def test_weights_start_from_truncated_normals(layer, std, bias):
    drawn = getattr(cifarnet(), layer)
    assert drawn.weight.abs().max() <= 2 * std
    assert drawn.weight.std().item() == pytest.approx(0.8796 * std, rel=0.06)
    assert torch.equal(drawn.bias, torch.full_like(drawn.bias, bias))


def test_dropout_stands_once_between_the_first_two_fully_connected_layers():
    network = cifarnet()
    assert [module.p for module in network.modules() if isinstance(module, nn.Dropout)] == [0.5]
    seen = {}
    network.fc2.register_forward_hook(lambda _, inputs, __: seen.update(fc2=inputs[0]))
    network.fc3.register_forward_hook(lambda _, inputs, __: seen.update(fc3=inputs[0]))
    for layer in (network.fc1, network.fc2):
        nn.init.zeros_(layer.weight)
        nn.init.ones_(layer.bias)
    network(torch.randn(16, 3, 28, 28))
    # All units are one before dropout: only dropout can have put zeros there.
    assert (seen["fc2"] == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert (seen["fc3"] > 0).all()


def test_maps_shrink_from_28_to_7():
    network = cifarnet()
    shapes = []
    for layer in (network.norm1, network.norm2, network.fc1):
        layer.register_forward_hook(lambda _, inputs, __: shapes.append(tuple(inputs[0].shape[1:])))
    network(torch.randn(1, 3, 28, 28))
    assert shapes == [(64, 14, 14), (64, 14, 14), (64 * 7 * 7,)]


def test_there_is_no_batch_norm():
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in cifarnet().modules())


def test_the_gradient_of_every_image_comes_from_one_call_of_vmap():
    """torch.func is how others take gradients per example; not every change of layout works inside it."""
    network = cifarnet().eval().double()  # rounding in float32 could turn a ReLU on in one way and off in the other
    parameters = dict(network.named_parameters())
    images = torch.randn(3, 3, 28, 28, dtype=torch.float64)

    def loss(parameters, image):
        return torch.func.functional_call(network, parameters, (image[None],)).logsumexp(1).sum()

    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, images)
    for number, image in enumerate(images):
        alone = torch.func.grad(loss)(parameters, image)
        for name in parameters:
            torch.testing.assert_close(together[name][number], alone[name])


def test_the_layout_of_the_images_does_not_matter():
    network = cifarnet().eval()
    images = torch.randn(2, 3, 28, 28)
    assert torch.equal(network(images), network(images.to(memory_format=torch.channels_last)))
