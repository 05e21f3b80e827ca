"""VOC, ImageNet, Clothing1M and images of one's own: what the lists say, and what happens when they are wrong."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.utils.data import DataLoader

from deepbilevel_lab.data import load_data
from deepbilevel_lab.data.decode import random_resized_crop
from deepbilevel_lab.data.image_files import VOC_CLASSES as OBJECTS
from tests.data.layouts import write, write_folder


def test_voc_lists_agree_with_the_annotations(tmp_path):
    assert_voc_lists_agree_with_annotations(write("voc2007", tmp_path))


def assert_voc_lists_agree_with_annotations(root):
    for split in ("trainval", "test"):
        data = load_data("voc2007", root, split)
        for path, labels, difficult in zip(data.paths, data.labels, data.difficult, strict=True):
            present, doubtful = set(), set()
            for thing in ElementTree.parse(path.parents[1] / "Annotations" / f"{path.stem}.xml").iter("object"):
                (doubtful if thing.findtext("difficult") == "1" else present).add(thing.findtext("name"))
            assert {OBJECTS[i] for i in labels.nonzero().flatten()} == present
            assert {OBJECTS[i] for i in difficult.nonzero().flatten()} == doubtful - present


def test_classes_of_folders_are_numbered_by_name(tmp_path):
    data = load_data("folder", write("folder", tmp_path))
    assert data.class_names == ("cat", "dog")
    assert data.class_counts() == [5, 5]  # notes.txt is no image
    assert [path.parent.name for path in data.paths] == ["cat"] * 5 + ["dog"] * 5


def test_imagenet_classes_are_the_same_in_both_splits(tmp_path):
    root = write("imagenet", tmp_path)
    assert load_data("imagenet", root, "train").class_names == load_data("imagenet", root, "val").class_names


def test_a_table_carries_clean_labels_and_relative_paths(tmp_path):
    data = load_data("csv", write("csv", tmp_path))
    assert data.class_names == ("a", "b")
    assert data.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.clean_labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_numbered_classes_of_a_table_sort_as_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("path,label\n" + "".join(f"{i}.png,{i}\n" for i in (10, 9, 2)))
    assert load_data("csv", tmp_path / "t.csv").class_names == ("2", "9", "10")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\n", "has the columns file, label; it needs path and label"),
        ("", "has the columns none; it needs"),
        ("path,label\na.png,\n", "line 2: a path or label is empty"),
        ("path,label\n", "the data set has no images"),
        ("path,label,clean_label\na.png,x,y\n", "no image has the class 'y'"),
    ],
)
def test_a_table_that_cannot_be_used_says_why(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_data("csv", tmp_path / "t.csv")


def test_missing_files_are_counted_and_the_first_is_named(tmp_path):
    data = load_data("csv", write("csv", tmp_path))
    data.paths[2].unlink()
    data.paths[4].unlink()
    with pytest.raises(FileNotFoundError, match=r"2 of 6 image files are missing, the first of them .*2\.png"):
        data.check_files()


def test_folders_that_cannot_be_used_say_why(tmp_path):
    with pytest.raises(ValueError, match="holds no folders"):
        load_data("folder", tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no image .*remove it or add some"):
        load_data("folder", tmp_path)


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        ("dog_trainval.txt: 000003 2", ValueError, r"dog_trainval\.txt, line 1: expected an image and 1, 0 or -1"),
        ("dog_trainval.txt: 999999 1", ValueError, "dog_trainval.txt lists other images"),
        ("dog_trainval.txt", FileNotFoundError, "dog_trainval.txt is missing; unpack VOC 2007 again"),
    ],
)
def test_a_damaged_voc_list_is_named(tmp_path, damage, error, message):
    root = write("voc2007", tmp_path)
    name, _, line = damage.partition(": ")
    path = root / "VOCdevkit" / "VOC2007" / "ImageSets" / "Main" / name
    path.unlink()
    if line:
        path.write_text(line + "\n")
    with pytest.raises(error, match=message):
        load_data("voc2007", root, "trainval")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("images/x.jpg fourteen", "expected an image and a class from 0 to 13"),
        ("images/x.jpg 14", "expected an image and a class from 0 to 13"),
        ("", "expected an image"),
    ],
)
def test_a_damaged_clothing1m_list_is_named(tmp_path, line, message):
    root = write("clothing1m", tmp_path)
    (root / "noisy_label_kv.txt").write_text(line + "\n")
    with pytest.raises(ValueError, match=rf"noisy_label_kv\.txt, line 1: {message}"):
        load_data("clothing1m", root, "noisy_train")


def test_clothing1m_images_without_a_label_are_counted(tmp_path):
    root = write("clothing1m", tmp_path)
    with (root / "noisy_train_key_list.txt").open("a") as file:
        file.write("images/9/99/unknown.jpg\n")
    with pytest.raises(ValueError, match=r"no label for 1 of the 29 images .*first of them images/9/99/unknown\.jpg"):
        load_data("clothing1m", root, "noisy_train")


def test_a_label_out_of_range_is_refused(tmp_path):
    data = load_data("csv", write("csv", tmp_path))
    data.labels[3] = 7
    with pytest.raises(ValueError, match="image 3 has the label 7, but there are 2 classes"):
        data.check_labels()


@pytest.mark.slow
def test_workers_decode_and_crop(tmp_path):
    crop = partial(random_resized_crop, size=24)
    data = replace(load_data("imagenet", write("imagenet", tmp_path)), view=crop)
    loader = DataLoader(data, batch_size=6, num_workers=2, multiprocessing_context="spawn")
    images, labels = zip(*loader, strict=True)
    assert torch.cat(images).shape == (12, 3, 24, 24)
    assert torch.equal(torch.cat(labels), data.labels)


def test_hidden_files_of_other_systems_are_no_images(tmp_path):
    write_folder(tmp_path)
    (tmp_path / "cat" / "._0.jpg").write_bytes(b"Mac OS X")
    data = load_data("folder", tmp_path)
    assert len(data) == 10
    assert not any(path.name.startswith(".") for path in data.paths)
