"""PASCAL VOC 2007 as a multi-label task, in its original layout.

This module knows the lists under ``ImageSets/Main``: a file per class and split with a line per image, 1 for present,
-1 for absent, and 0 where every object of the class is marked difficult.
"""

from pathlib import Path

import torch

from deepbilevel_lab.data.image_set import ImagesOnDisk

CLASS_NAMES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


def load_voc2007(directory: Path, split: str) -> ImagesOnDisk:
    """Read ``trainval`` or ``test``: labels ``[images, 20]``, with the difficult ones absent and marked."""
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
    columns = [_read_list(root / "ImageSets" / "Main" / f"{name}_{split}.txt") for name in CLASS_NAMES]
    keys = list(columns[0])
    for name, column in zip(CLASS_NAMES, columns, strict=True):
        if list(column) != keys:
            raise ValueError(f"{root}/ImageSets/Main/{name}_{split}.txt lists other images than the other classes do")
    values = torch.tensor([[column[key] for column in columns] for key in keys], dtype=torch.int8)
    return ImagesOnDisk(
        paths=[root / "JPEGImages" / f"{key}.jpg" for key in keys],
        labels=(values == 1).float(),
        difficult=values == 0,
        class_names=CLASS_NAMES,
    )


def _read_list(path: Path) -> dict[str, int]:
    values: dict[str, int] = {}
    for number, line in enumerate(_lines(path), start=1):
        key, _, value = line.partition(" ")
        if value.strip() not in {"1", "0", "-1"}:
            raise ValueError(f"{path}, line {number}: expected an image and 1, 0 or -1, got {line!r}")
        values[key] = int(value)
    return values


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing; unpack VOC 2007 again") from None
