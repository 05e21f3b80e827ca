"""The real files, where they are at hand: set DEEPBILEVEL_DATA to the folder that holds them."""

import os
from pathlib import Path

import numpy as np
import pytest

from deepbilevel_lab.data import load_data
from deepbilevel_lab.data.image_files import load_clothing1m
from tests.contracts.data import assert_images_can_be_read, assert_is_a_data_set
from tests.data.test_files import assert_voc_lists_agree_with_annotations

pytestmark = pytest.mark.data
ROOT = Path(os.environ.get("DEEPBILEVEL_DATA", "data"))


def at_hand(*path: str) -> Path:
    """Return the folder, or skip with the command that would fetch it."""
    folder = ROOT.joinpath(*path)
    if not folder.exists():
        pytest.skip(f"{folder} is not there; fetch it (deepbilevel data fetch cifar10) and set DEEPBILEVEL_DATA")
    return folder


def test_cifar10_has_5000_training_and_1000_test_images_per_class():
    at_hand("cifar-10-batches-py")
    train, test = load_data("cifar10", ROOT), load_data("cifar10", ROOT, "test")
    assert train.class_counts() == [5000] * 10
    assert test.class_counts() == [1000] * 10
    assert train.class_names[:3] == ("airplane", "automobile", "bird")
    # The published mean of the training pixels, in units of 1/255: channels are in their places.
    np.testing.assert_allclose(train.images.double().mean((0, 2, 3)) / 255, [0.4914, 0.4822, 0.4465], atol=1e-4)


@pytest.mark.parametrize(
    ("labels", "rate"),
    [("aggre", 0.0901), ("random1", 0.1723), ("random2", 0.1812), ("random3", 0.1764), ("worst", 0.4021)],
)
def test_cifar10n_has_the_noise_it_is_known_for(labels, rate):
    at_hand("cifar-10n")
    data = load_data("cifar10", ROOT, labels=labels)
    assert (data.labels != data.clean_labels).double().mean().item() == pytest.approx(rate, abs=5e-5)


def test_voc2007_lists_agree_with_its_annotations():
    root = at_hand("voc2007-sample")
    for split in ("trainval", "test"):
        data = load_data("voc2007", root, split)
        assert_is_a_data_set(data)
        assert_images_can_be_read(data)
    assert_voc_lists_agree_with_annotations(root)


def test_imagenet_images_are_read_from_folders_by_wnid():
    root = at_hand("imagenette-sample")
    train, val = load_data("imagenet", root, "train"), load_data("imagenet", root, "val")
    assert train.class_counts() == [16] * 10
    assert val.class_counts() == [6] * 10
    assert train.class_names == val.class_names
    assert_images_can_be_read(train)


def test_clothing1m_lists_have_the_expected_form(tmp_path):
    root = at_hand("clothing1m-sample")
    lines = (root / "clean_label_kv.txt").read_text()
    (tmp_path / "clean_label_kv.txt").write_text(lines)
    (tmp_path / "clean_val_key_list.txt").write_text("\n".join(line.split(" ")[0] for line in lines.splitlines()))
    data = load_clothing1m(tmp_path, "clean_val")
    assert len(data) == len(lines.splitlines())
    assert data.labels.max() <= 13
    assert (root / "category_names_eng.txt").read_text().split() == list(data.class_names)
    # The published heads of the lists are of different images: that is said, with the first of them.
    with pytest.raises(ValueError, match=r"no label for \d+ of the \d+ images in clean_val_key_list"):
        load_clothing1m(root, "clean_val")
