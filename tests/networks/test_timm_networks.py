"""Networks of timm, with torchvision and without; nothing is fetched."""

import importlib.util
import sys

import pytest
import torch

from deepbilevel_lab.networks.timm_networks import import_timm, make_timm, usual_side

pytest.importorskip("huggingface_hub")
if importlib.util.find_spec("timm") is None:
    pytest.skip("timm is not installed", allow_module_level=True)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    import_timm()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_it_scores_and_leaves_no_stand_in_behind():
    network = make_timm("timm:resnet10t", 5, pretrained=False, arguments={})
    assert network(torch.zeros(2, 3, 64, 64)).shape == (2, 5)
    assert not [name for name, each in sys.modules.items() if type(each).__name__ == "_StandIn"]
    assert usual_side("timm:resnet18") == 224


def test_a_wrong_name_gets_those_near_it():
    with pytest.raises(ValueError, match=r"network timm:resnet1: .*near it: .*resnet1"):
        make_timm("timm:resnet1", 5, pretrained=False, arguments={})


def test_weights_that_cannot_be_fetched_name_the_file_to_bring():
    with pytest.raises(ValueError, match=r"https://huggingface\.co/timm/resnet18.*safetensors.*--weights"):
        make_timm("timm:resnet18", 5, pretrained=True, arguments={})


@pytest.mark.parametrize(
    ("name", "arguments"), [("timm:local-dir:/x", {}), ("timm:resnet18", {"checkpoint_path": "x"})]
)
def test_files_of_this_machine_are_not_named_by_a_spec(name, arguments):
    with pytest.raises(ValueError, match="names files of this machine"):
        make_timm(name, 5, pretrained=False, arguments=arguments)
