"""Every data set of the catalog, from files in its published layout."""

import pytest
import torch

from deepbilevel_lab.data import DATA_SETS, load_data
from deepbilevel_lab.data.catalog import load_samples
from deepbilevel_lab.data.table import ColumnsSpec
from tests.contracts.data import assert_images_can_be_read, assert_is_a_data_set, assert_loaders_can_batch_it
from tests.data.layouts import write

IMAGES = {name: entry for name, entry in DATA_SETS.items() if entry.holds == "images"}
every_split = pytest.mark.parametrize(
    ("name", "split"), [(name, split) for name, entry in IMAGES.items() for split in entry.splits]
)


@every_split
def test_every_split_keeps_the_contract(name, split, tmp_path):
    data = load_data(name, write(name, tmp_path), split)
    assert_is_a_data_set(data)
    assert_images_can_be_read(data)
    assert_loaders_can_batch_it(data)


@pytest.mark.parametrize("name", IMAGES)
def test_the_first_split_is_the_default_and_loading_repeats_itself(name, tmp_path):
    directory = write(name, tmp_path)
    default, first = load_data(name, directory), load_data(name, str(directory), DATA_SETS[name].splits[0])
    assert torch.equal(default.labels, first.labels)
    assert torch.equal(default.read(0), first.read(0))


@pytest.mark.parametrize("name", [name for name in IMAGES if name != "digits"])
def test_a_data_set_that_is_not_there_says_what_is_missing(name, tmp_path):
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        load_data(name, tmp_path / "nowhere")


def test_what_holds_no_images_says_how_to_load_it(tmp_path):
    with pytest.raises(ValueError, match="its target is not known; name the column to predict"):
        load_data("table", tmp_path)
    with pytest.raises(ValueError, match=r"a Dataset in Python, .* pass it again"):
        load_data("dataset")
    (tmp_path / "table.csv").write_text("x,y\n1,a\n2,b\n")
    columns = ColumnsSpec("y")
    assert len(load_samples("table", tmp_path / "table.csv", columns=columns)) == 2


def test_unknown_names_get_the_nearest_one():
    with pytest.raises(ValueError, match="unknown data set 'cifar11'; did you mean 'cifar10'"):
        load_data("cifar11")
    with pytest.raises(ValueError, match="There are: digits, cifar10"):
        load_data("mnist-of-another-kind")
    with pytest.raises(ValueError, match="unknown split of digits 'trian'; did you mean 'train'"):
        load_data("digits", split="trian")
    with pytest.raises(ValueError, match="unknown label set of digits 'worst'; there is none"):
        load_data("digits", labels="worst")


def test_digits_have_the_pixels_scikit_learn_ships():
    train, test = load_data("digits"), load_data("digits", split="test")
    assert (len(train), len(test)) == (1347, 450)
    assert train.images.max() == 255
    assert train.images.shape[1:] == (1, 8, 8)
