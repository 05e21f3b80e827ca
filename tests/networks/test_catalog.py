"""The catalog: what is in it, and what one is told who asks for something else."""

import pytest

from deepbilevel_lab.networks import NETWORKS, NetworkEntry, build_network, cifarnet


def test_every_entry_is_complete():
    for name, entry in NETWORKS.items():
        assert isinstance(entry, NetworkEntry)
        assert name == name.lower()
        assert name == entry.build.__name__
        assert 10 < len(entry.description) < 80
        assert len(entry.input_shape) == 3


def test_a_name_and_a_number_of_classes_make_a_network():
    assert type(build_network("cifarnet", num_classes=3)) is type(cifarnet(3))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("cifar_net", "cifarnet"),
        ("CifarNet", "cifarnet"),
        ("resnet-50", "resnet50"),
        ("preact_resnet-18", "preact_resnet18"),
    ],
)
def test_a_misspelt_name_is_recognised(wrong, meant):
    with pytest.raises(ValueError, match=f"unknown network '{wrong}'; did you mean '{meant}'"):
        build_network(wrong, num_classes=10)


def test_an_unknown_name_is_answered_with_all_there_are():
    with pytest.raises(ValueError, match="unknown network 'zzz'") as error:
        build_network("zzz", num_classes=10)
    assert "did you mean" not in str(error.value)
    assert ", ".join(NETWORKS) in str(error.value)


def test_the_catalog_cannot_be_changed_by_accident():
    with pytest.raises(TypeError):
        NETWORKS["mine"] = NETWORKS["cifarnet"]
