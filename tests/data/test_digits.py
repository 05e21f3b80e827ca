"""The digits are all there, split without overlap, and the same for everyone."""

import sys

import numpy as np
import pytest
import torch
from sklearn import datasets

from deepbilevel_lab.data import load_digits


def test_images_are_grey_8x8_in_the_unit_interval_with_a_label_each():
    digits = load_digits()
    for images, labels, count in [
        (digits.train_images, digits.train_labels, 1347),
        (digits.test_images, digits.test_labels, 450),
    ]:
        assert images.shape == (count, 1, 8, 8)
        assert labels.shape == (count,)
        assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
        assert (images.min(), images.max()) == (0, 1)
        assert labels.unique().tolist() == list(range(10))


@pytest.mark.parametrize("seed", [0, 1])
def test_training_and_test_images_together_are_all_digits_each_once_with_its_own_label(seed):
    digits = load_digits(seed)
    ours = torch.cat(
        [
            torch.cat([digits.train_images.flatten(1), digits.train_labels[:, None]], dim=1),
            torch.cat([digits.test_images.flatten(1), digits.test_labels[:, None]], dim=1),
        ]
    )
    pixels, labels = datasets.load_digits(return_X_y=True)
    theirs = np.column_stack([pixels / 16, labels]).astype(np.float32)
    assert sorted(map(tuple, ours.tolist())) == sorted(map(tuple, theirs.tolist()))


def test_the_split_is_decided_by_the_seed():
    first, again, other = load_digits(3), load_digits(3), load_digits(4)
    for name in ("train_images", "train_labels", "test_images", "test_labels"):
        assert torch.equal(getattr(first, name), getattr(again, name))
    assert not torch.equal(first.train_images, other.train_images)


def test_the_split_is_that_of_earlier_versions():
    digits = load_digits()
    assert digits.train_labels[:12].tolist() == [2, 8, 2, 6, 6, 7, 1, 9, 8, 5, 2, 8]
    assert digits.test_labels[:12].tolist() == [0, 7, 7, 4, 7, 2, 0, 1, 2, 4, 8, 1]


def test_a_missing_scikit_learn_is_reported_with_the_install_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)  # importing it now fails as if it were not installed
    with pytest.raises(ImportError, match=r"scikit-learn; run: pip install 'deepbilevel\[cli\]'"):
        load_digits()
