"""AlexNet: size, order of layers, initial values."""

import pytest
import torch
from torch import nn

from deepbilevel_lab.networks import alexnet


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return alexnet().eval()


def test_it_has_the_known_number_of_parameters(network):
    assert sum(parameter.numel() for parameter in network.parameters()) == 60_965_224


def test_maps_shrink_from_227_to_6(network):
    x = torch.randn(1, 3, 227, 227)
    shapes = []
    with torch.no_grad():
        for layer in network.features:
            x = layer(x)
            if isinstance(layer, nn.Conv2d | nn.MaxPool2d):
                shapes.append(tuple(x.shape[1:]))
    assert shapes == [
        *[(96, 55, 55), (96, 27, 27)],
        *[(256, 27, 27), (256, 13, 13)],
        *[(384, 13, 13), (384, 13, 13), (256, 13, 13), (256, 6, 6)],
    ]


def test_responses_are_normalised_between_relu_and_pool_of_the_first_two_convolutions(network):
    names = [type(layer).__name__ for layer in network.features]
    block = ["Conv2d", "ReLU", "ResponseNorm", "MaxPool2d"]
    assert names == [*block, *block, *["Conv2d", "ReLU"] * 3, "MaxPool2d"]
    norms = [layer for layer in network.features if type(layer).__name__ == "ResponseNorm"]
    assert [(norm.window, norm.alpha) for norm in norms] == [(5, 1e-4)] * 2


def test_dropout_precedes_the_last_two_fully_connected_layers(network):
    names = [type(layer).__name__ for layer in network.classifier]
    assert names == ["Flatten", *["Linear", "ReLU", "Dropout"] * 2, "Linear"]
    assert {layer.p for layer in network.classifier if isinstance(layer, nn.Dropout)} == {0.5}


def test_the_network_has_two_halves(network):
    assert [layer.groups for layer in network.features if isinstance(layer, nn.Conv2d)] == [1, 2, 1, 2, 2]


def test_weights_start_from_normals(network):
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for layer, std in zip(layers, [0.01] * 5 + [0.005, 0.005, 0.01], strict=True):
        assert layer.weight.std().item() == pytest.approx(std, rel=0.02)
    assert [layer.bias.unique().tolist() for layer in layers] == [
        [pytest.approx(bias)] for bias in (0, 0.1, 0, 0.1, 0.1, 0.1, 0.1, 0)
    ]
