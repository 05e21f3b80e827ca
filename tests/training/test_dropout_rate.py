"""The rate of dropout as a setting of the network."""

import pytest
import torch
from torch import nn

from deepbilevel_lab.networks import NETWORKS
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.training.model_file import load_model, save_model
from tests.training.test_combinations import digits

WITH_DROPOUT = [name for name, entry in NETWORKS.items() if entry.has_dropout]


def rates(model):
    return [module.p for module in model.modules() if isinstance(module, nn.Dropout)]


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_every_layer_gets_it_and_nothing_else_changes(name):
    torch.manual_seed(0)
    own = make_model(NetworkSpec(name), 10)
    torch.manual_seed(0)
    told = make_model(NetworkSpec(name, dropout=0.7), 10)
    assert set(rates(told)) == {0.7}
    assert len(rates(told)) == len(rates(own))
    assert set(rates(own)) == {
        0.0 if name in ("inception_zhang", "preact_resnet8", "preact_resnet18", "small_resnet") else 0.5
    }
    for one, other in zip(own.parameters(), told.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_rate_of_zero_turns_dropout_off():
    model = make_model(NetworkSpec("digit_cnn", dropout=0), 10).train()
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(model(images), model(images))


def test_a_trained_network_keeps_it(tmp_path):
    # Labels predicted with dropout left on depend on it.
    spec = digits(network__dropout=0.3)
    save_model(tmp_path / "model.safetensors", make_model(spec.network, 10), tuple("0123456789"), spec)
    assert rates(load_model(tmp_path / "model.safetensors").network) == [0.3]
