"""What is not there is named, with what to do about it."""

import pytest

from deepbilevel_paper import find_experiment
from deepbilevel_paper.made_data import make_data
from deepbilevel_paper.needed_data import missing_data, specs_of


def names(experiment, folder):
    return [each.name for each in missing_data(specs_of(find_experiment(experiment)), folder)]


def remedy(experiment, folder):
    return " ".join(each.remedy for each in missing_data(specs_of(find_experiment(experiment)), folder))


def test_everything_is_missing_from_an_empty_folder(tmp_path):
    assert names("noise-curves-cifarnet", tmp_path) == ["cifar10", "cifar100"]
    assert f"deepbilevel data fetch cifar100 --dir {tmp_path}" in remedy("noise-curves-cifarnet", tmp_path)
    assert names("clothing1m", tmp_path) == ["clothing1m", "ResNet-50 trained on ImageNet"]
    assert f"resnet50-0676ba61.pth into {tmp_path}" in remedy("clothing1m", tmp_path)
    assert f"{tmp_path}/val/<wnid>/" in remedy("imagenet", tmp_path)
    assert "VOCtest_06-Nov-2007.tar" in remedy("voc2007", tmp_path)


def test_what_is_there_is_not_missing(tmp_path):
    make_data(tmp_path, ["cifar10"])
    assert names("table1", tmp_path) == []
    assert names("comparison-40", tmp_path) == ["cifar100"]
    (tmp_path / "resnet50-0676ba61.pth").touch()
    assert names("clothing1m", tmp_path) == ["clothing1m"]


@pytest.mark.parametrize("part", ["train", "val"])
def test_half_of_imagenet_is_not_there(part, tmp_path):
    (tmp_path / part).mkdir()
    assert names("imagenet", tmp_path) == ["imagenet"]
