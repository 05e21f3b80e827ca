"""Every network of the catalog, through the same battery."""

import pytest
from torch import nn

from deepbilevel_lab.networks import NETWORKS, build_network
from tests.contracts import networks as contract
from tests.contracts.networks import every_network, every_network_compared


@every_network
def test_the_catalog_and_the_network_agree_on_the_images(name):
    assert build_network(name, num_classes=2).input_shape == NETWORKS[name].input_shape


@every_network
def test_the_catalog_and_the_network_agree_on_dropout(name):
    layers = build_network(name, num_classes=2).modules()
    assert any(isinstance(layer, nn.Dropout) for layer in layers) == NETWORKS[name].has_dropout


@every_network
def test_it_scores_every_class(name):
    contract.assert_it_scores_every_class(name)


@every_network
def test_the_gradient_reaches_every_parameter_and_the_images(name):
    contract.assert_gradients_are_everywhere(name)


@every_network
def test_the_seed_decides_the_weights(name):
    contract.assert_the_seed_decides_the_weights(name)


@every_network
def test_evaluation_is_deterministic(name):
    contract.assert_evaluation_is_deterministic(name)


@every_network_compared
def test_channels_last_changes_nothing(name):
    contract.assert_memory_format_does_not_matter(name)


@pytest.mark.slow
@every_network
def test_compiling_changes_nothing(name):
    contract.assert_tracing_does_not_matter(name)


@every_network
def test_weights_survive_a_round_trip(name):
    contract.assert_weights_survive_a_round_trip(name)


@every_network
def test_images_of_another_shape_are_refused(name):
    contract.assert_other_images_are_refused(name)


@every_network
def test_impossible_numbers_of_classes_are_refused(name):
    contract.assert_impossible_numbers_of_classes_are_refused(name)
