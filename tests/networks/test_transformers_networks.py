"""Image classifiers of transformers, from a config and from a folder."""

import pytest
import torch

from deepbilevel_lab.networks import named_code
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.networks.named_code import name_code

transformers = pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path):
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_labels=7,
    )
    torch.manual_seed(0)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    return tmp_path / "vit"


@pytest.mark.parametrize("pretrained", [False, True])
def test_it_scores(folder, pretrained):
    name = f"transformers:{folder}"
    spec = NetworkSpec(name, side=32, pretrained=pretrained, code=name_code(name))
    assert make_model(spec, 3)(torch.zeros(2, 3, 32, 32)).shape == (2, 3)


def test_a_folder_that_nobody_named_is_refused(folder, monkeypatch):
    monkeypatch.setattr(named_code, "_named", {})
    with pytest.raises(ValueError, match="used only if you name it"):
        make_model(NetworkSpec(f"transformers:{folder}", side=32, code="0" * 16), 3)


def test_a_config_of_something_else_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    name = f"transformers:{tmp_path}"
    spec = NetworkSpec(name, side=32, code=name_code(name))
    with pytest.raises(ValueError, match=r"needs the config\.json of a classifier"):
        make_model(spec, 3)
