"""Clothing1M: a million shop images with noisy labels, and smaller sets with clean ones, from its own lists."""

from pathlib import Path

import torch

from deepbilevel_lab.data.image_set import ImagesOnDisk

CLASS_NAMES = (
    "T-Shirt", "Shirt", "Knitwear", "Chiffon", "Sweater", "Hoodie", "Windbreaker", "Jacket", "Downcoat", "Suit",
    "Shawl", "Dress", "Vest", "Underwear",
)  # fmt: skip

# Split -> the list of its images, and the file with their labels.
_SPLITS = {
    "noisy_train": ("noisy_train_key_list.txt", "noisy_label_kv.txt"),
    "clean_train": ("clean_train_key_list.txt", "clean_label_kv.txt"),
    "clean_val": ("clean_val_key_list.txt", "clean_label_kv.txt"),
    "clean_test": ("clean_test_key_list.txt", "clean_label_kv.txt"),
}
SPLITS = tuple(_SPLITS)


def load_clothing1m(directory: Path, split: str) -> ImagesOnDisk:
    """Read a split: the images its key list names, with the labels its label file gives them."""
    keys_file, labels_file = (directory / name for name in _SPLITS[split])
    keys = _read(keys_file).split("\n")
    labels = _read_labels(labels_file)
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
        class_names=CLASS_NAMES,
    )


def _read_labels(path: Path) -> dict[str, int]:
    labels: dict[str, int] = {}
    for number, line in enumerate(_read(path).splitlines(), start=1):
        key, _, value = line.rpartition(" ")
        if not key or not value.isdecimal() or int(value) >= len(CLASS_NAMES):
            raise ValueError(f"{path}, line {number}: expected an image and a class from 0 to 13, got {line!r}")
        labels[key] = int(value)
    return labels


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} is missing; Clothing1M is given out by its authors on request: unpack its lists and images here"
        ) from None
