"""Made images: in their layouts, told from real ones, and never written over those."""

import numpy as np
import pytest
import torch

from deepbilevel_lab.data import load_data
from deepbilevel_paper import EXPERIMENTS
from deepbilevel_paper.made_data import make_data, make_picture
from deepbilevel_paper.needed_data import missing_data, specs_of
from deepbilevel_paper.scale import SMOKE

NAMES = ("cifar10", "cifar100", "voc2007", "imagenet", "clothing1m")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "data"
    make_data(root, NAMES)
    return root


def test_all_data_sets_of_the_paper_can_be_made(root):
    assert {spec.data.name for each in EXPERIMENTS.values() for spec in specs_of(each)} == set(NAMES)
    pretrained = "ResNet-50 trained on ImageNet"
    for experiment in EXPERIMENTS.values():
        assert {each.name for each in missing_data(specs_of(experiment), root)} <= {pretrained}


@pytest.mark.parametrize("name", NAMES)
def test_there_are_as_many_images_as_the_scale_takes(name, root):
    train, test = (
        load_data(name, root),
        load_data(name, root, {"imagenet": "val", "clothing1m": "clean_test"}.get(name, "test")),
    )
    assert len(train) >= SMOKE.reductions[name].images
    assert len(test) >= SMOKE.reductions[name].test_images


@pytest.mark.parametrize("name", NAMES)
def test_no_image_is_both_trained_and_tested_on(name, root):
    test_split = {"imagenet": "val", "clothing1m": "clean_test"}.get(name, "test")
    train, test = load_data(name, root), load_data(name, root, test_split)
    seen = {train.read(index).numpy().tobytes() for index in range(len(train))}
    assert len(seen) == len(train)
    assert not any(test.read(index).numpy().tobytes() in seen for index in range(len(test)))


def test_pictures_of_a_class_are_alike_and_those_of_others_are_not():
    first, again, other = (make_picture(*which).astype(int) for which in ((1, 0), (1, 1), (2, 0)))
    assert np.array_equal(first, make_picture(1, 0))
    assert 0 < np.abs(first - again).mean() < 0.7 * np.abs(first - other).mean()


def test_noisy_clothes_have_some_wrong_labels(root):
    noisy, clean = load_data("clothing1m", root, "noisy_train"), load_data("clothing1m", root, "clean_train")
    assert float((noisy.labels != clean.labels).float().mean()) == pytest.approx(0.25)


def test_made_data_is_kept_and_anything_else_is_not_touched(root, tmp_path):
    before = load_data("cifar10", root).images
    make_data(root, NAMES)
    assert torch.equal(load_data("cifar10", root).images, before)
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(FileExistsError, match="cifar-10-batches-py exists and is not known to be synthetic"):
        make_data(tmp_path, ["cifar10"])
    assert list((tmp_path / "cifar-10-batches-py").iterdir()) == []
    with pytest.raises(ValueError, match="unknown synthetic data set 'cifar11'; did you mean 'cifar10'"):
        make_data(tmp_path, ["cifar11"])
