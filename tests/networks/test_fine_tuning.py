"""What is frozen, and what learns how fast."""

import pytest
import torch
from torch import nn

from deepbilevel_lab.networks import small_resnet
from deepbilevel_lab.networks.fine_tuning import find_head, freeze_backbone, number_layers
from deepbilevel_lab.training.optimizers import OptimizerSpec


def test_layers_are_numbered_from_the_scores():
    network = small_resnet(3)
    numbers = number_layers(network)
    assert numbers[network.fc.weight] == 0
    assert [numbers[block.conv1.weight] for block in network.blocks] == [4, 3, 2, 1]
    assert numbers[network.stem[0].weight] > 4
    assert set(numbers) == set(network.parameters())


def test_layers_deep_inside_are_found():
    inner = nn.ModuleDict({"layer": nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])})
    network = nn.ModuleDict({"encoder": inner, "head": nn.Linear(8, 2)})
    numbers = number_layers(network)
    assert [numbers[each.weight] for each in inner["layer"]] == [3, 2, 1]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_layer_decay_makes_early_layers_learn_slower(weight_decay):
    network = small_resnet(3)
    spec = OptimizerSpec("SGD", lr=1.0, arguments={"weight_decay": weight_decay}, layer_decay=0.5)
    optimizer = spec.make(network)
    scale = {parameter: group["lr_scale"] for group in optimizer.param_groups for parameter in group["params"]}
    assert scale[network.fc.weight] == scale[network.fc.bias] == 1.0
    assert scale[network.blocks[3].conv1.weight] == 0.5
    assert set(scale) == set(network.parameters())


def test_a_frozen_network_gives_the_same_features_in_training_and_evaluation():
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.LazyLinear(2))
    images = torch.randn(4, 3, 8, 8)
    network(images)
    freeze_backbone(network, 2)
    scores = network.train()(images)
    assert torch.equal(scores, network.eval()(images))
    assert [name for name, each in network.named_parameters() if each.requires_grad] == ["4.weight", "4.bias"]


def test_a_network_without_a_last_layer_of_these_classes_is_refused():
    with pytest.raises(ValueError, match="no layer of Linear gives 5 scores"):
        find_head(nn.Linear(3, 4), 5)
