"""Data sets of image files, each in its own layout: a folder per class, a table, ImageNet, VOC 2007 and Clothing1M.

Nothing is decoded here: a loader returns the paths of the images and their labels.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from deepbilevel_lab.data.image_set import ImagesOnDisk
from deepbilevel_lab.data.labelled_set import natural
from deepbilevel_lab.regular_files import read_regular

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
CLOTHING_CLASSES = (
    "T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket", "Downcoat", "Suit",
    "Shawl", "Dress", "Vest", "Underwear",
)  # fmt: skip

_TRAIN_NAMES = ("train", "training")
_TEST_NAMES = ("val", "valid", "validation", "test", "testing")  # the first that is there is tested on
# Split -> the list of its images, and the file with their labels.
_CLOTHING_FILES = {
    "noisy_train": ("noisy_train_key_list.txt", "noisy_label_kv.txt"),
    "clean_train": ("clean_train_key_list.txt", "clean_label_kv.txt"),
    "clean_val": ("clean_val_key_list.txt", "clean_label_kv.txt"),
    "clean_test": ("clean_test_key_list.txt", "clean_label_kv.txt"),
}
CLOTHING_SPLITS = tuple(_CLOTHING_FILES)
_CLOTHING_REMEDY = "Clothing1M is given out by its authors on request: unpack its lists and images here"


class FolderParts(NamedTuple):
    """A folder that holds not classes but parts of a data set, each with a folder per class.

    Attributes:
        train: to train on.
        test: to test on while training.
        untouched: another such part that nothing has to do with, if there is one.
    """

    train: Path
    test: Path
    untouched: Path | None


def find_parts(directory: Path) -> FolderParts | None:
    """Return the parts of a folder, if parts is what its folders are.

    That is so if all are called as parts are, one as training is, and this holds folders itself: a class called
    "train", beside other classes or with images in it, is a class.
    """
    names = {name.lower(): directory / name for name in _subfolders(directory)} if directory.is_dir() else {}
    train = next((names[name] for name in _TRAIN_NAMES if name in names), None)
    others = [names[name] for name in _TEST_NAMES if name in names]
    if train is None or not others or len(names) != 1 + len(others) or not _subfolders(train):
        return None
    return FolderParts(train, others[0], others[1] if len(others) > 1 else None)


def _subfolders(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def load_folder(directory: Path) -> ImagesOnDisk:
    """Read a folder that holds one folder per class; classes are numbered in the order of their names."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a folder; it should hold one folder of images per class")
    if (parts := find_parts(directory)) is not None:
        raise ValueError(
            f"{directory} holds {parts.train.name}/ and {parts.test.name}/, parts of a data set and no classes; give "
            f"{parts.train}, and {parts.test} as data.test_path (--val)"
        )
    classes = _subfolders(directory)
    if not classes:
        raise ValueError(f"{directory} holds no folders; put the images of each class into a folder of its name")
    paths: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(classes):
        # Hidden files are what systems leave behind, such as the ._photo.jpg of macOS.
        own = sorted(
            path
            for path in (directory / name).rglob("*")
            if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".")
        )
        if not own:
            raise ValueError(
                f"{directory / name} holds no image ({', '.join(sorted(IMAGE_SUFFIXES))}); remove it or add some"
            )
        paths += own
        labels += [number] * len(own)
    return ImagesOnDisk(paths=paths, labels=torch.tensor(labels, dtype=torch.int64), class_names=tuple(classes))


def load_imagenet(directory: Path, split: str) -> ImagesOnDisk:
    """Read ``train`` or ``val`` of ImageNet, laid out as a folder per wnid."""
    if not (directory / split).is_dir():
        raise FileNotFoundError(
            f"imagenet is not in {directory} (looked for {split}/<wnid>/*.JPEG); unpack it there, and sort the "
            "validation images into folders by wnid"
        )
    return load_folder(directory / split)


def load_csv(table: Path) -> ImagesOnDisk:
    """Read a table with the columns ``path,label`` and optionally ``clean_label``; paths are relative to the table."""
    if not table.is_file():
        raise FileNotFoundError(f"{table} is not a file; it should be a table with the columns path,label")
    columns, rows = read_table(table)
    if not {"path", "label"} <= set(columns):
        raise ValueError(
            f"{table} has the columns {', '.join(columns) or 'none'}; it needs path and label. Of a table of numbers "
            "or text, say which column holds the labels: --target"
        )
    for number, row in enumerate(rows, start=2):
        if any(not row[name] for name in ("path", "label", "clean_label") if name in columns):
            raise ValueError(f"{table}, line {number}: a path or label is empty; fill it in or remove the line")
    has_clean = "clean_label" in columns
    given = [row["label"] for row in rows]
    clean = [row["clean_label"] for row in rows] if has_clean else []
    names = sorted({*given, *clean}, key=natural)
    number_of = {name: number for number, name in enumerate(names)}
    return ImagesOnDisk(
        paths=[table.parent / row["path"] for row in rows],
        labels=torch.tensor([number_of[name] for name in given], dtype=torch.int64),
        clean_labels=torch.tensor([number_of[name] for name in clean], dtype=torch.int64) if has_clean else None,
        class_names=tuple(names),
    )


def read_table(table: Path) -> tuple[Sequence[str], list[dict[str, str]]]:
    """Return the columns and the lines of a CSV table that a person, or a stranger, made."""
    try:
        reader = csv.DictReader(io.StringIO(read_csv_text(table), newline=""))
        rows = list(reader)
        return reader.fieldnames or [], rows
    except csv.Error as error:  # fields without end, and the like
        raise ValueError(f"{table} is not a table: {error}; save it as CSV, with a line per image") from error


def read_csv_text(table: Path) -> str:
    """Return the text of a CSV file."""
    try:
        text = read_regular(table).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{table} is not UTF-8 text: {error}; save it as CSV in UTF-8") from error
    if "\0" in text:  # which no path can hold, and older versions of Python do not read
        raise ValueError(f"{table} holds zero bytes; save it as CSV in UTF-8")
    return text


def load_voc2007(directory: Path, split: str) -> ImagesOnDisk:
    """Read ``trainval`` or ``test``: labels ``[images, 20]``, with the difficult ones absent and marked.

    The lists under ``ImageSets/Main`` are a file per class and split with a line per image: 1 for present, -1 for
    absent, and 0 where every object of the class is marked difficult.
    """
    root = next(
        (
            folder
            for folder in (directory / "VOCdevkit" / "VOC2007", directory / "VOC2007", directory)
            if (folder / "ImageSets" / "Main").is_dir()
        ),
        None,
    )
    if root is None:
        raise FileNotFoundError(
            f"voc2007 is not in {directory} (looked for VOCdevkit/VOC2007/ImageSets/Main); "
            "unpack its trainval and test archives there"
        )
    columns = [_read_voc_list(root / "ImageSets" / "Main" / f"{name}_{split}.txt") for name in VOC_CLASSES]
    keys = list(columns[0])
    for name, column in zip(VOC_CLASSES, columns, strict=True):
        if list(column) != keys:
            raise ValueError(f"{root}/ImageSets/Main/{name}_{split}.txt lists other images than the other classes do")
    values = torch.tensor([[column[key] for column in columns] for key in keys], dtype=torch.int8)
    return ImagesOnDisk(
        paths=[root / "JPEGImages" / f"{key}.jpg" for key in keys],
        labels=(values == 1).float(),
        difficult=values == 0,
        class_names=VOC_CLASSES,
    )


def _read_voc_list(path: Path) -> dict[str, int]:
    values: dict[str, int] = {}
    for number, line in enumerate(_read_text(path, "unpack VOC 2007 again").splitlines(), start=1):
        key, _, value = line.partition(" ")
        if value.strip() not in {"1", "0", "-1"}:
            raise ValueError(f"{path}, line {number}: expected an image and 1, 0 or -1, got {line!r}")
        values[key] = int(value)
    return values


def load_clothing1m(directory: Path, split: str) -> ImagesOnDisk:
    """Read a split: the images its key list names, with the labels its label file gives them."""
    keys_file, labels_file = (directory / name for name in _CLOTHING_FILES[split])
    keys = _read_text(keys_file, _CLOTHING_REMEDY).split("\n")
    labels = _read_clothing_labels(labels_file)
    keys = [key for key in keys if key]
    missing = [key for key in keys if key not in labels]
    if missing:
        raise ValueError(
            f"{labels_file} has no label for {len(missing)} of the {len(keys)} images in {keys_file.name}, "
            f"the first of them {missing[0]}; fetch both files again"
        )
    return ImagesOnDisk(
        paths=[directory / key for key in keys],
        labels=torch.tensor([labels[key] for key in keys], dtype=torch.int64),
        class_names=CLOTHING_CLASSES,
    )


def _read_clothing_labels(path: Path) -> dict[str, int]:
    labels: dict[str, int] = {}
    for number, line in enumerate(_read_text(path, _CLOTHING_REMEDY).splitlines(), start=1):
        key, _, value = line.rpartition(" ")
        if not key or not value.isdecimal() or int(value) >= len(CLOTHING_CLASSES):
            raise ValueError(f"{path}, line {number}: expected an image and a class from 0 to 13, got {line!r}")
        labels[key] = int(value)
    return labels


def _read_text(path: Path, remedy: str) -> str:
    try:
        return read_regular(path).decode("utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing; {remedy}") from None
