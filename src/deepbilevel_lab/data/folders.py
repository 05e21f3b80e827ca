"""Images of one's own, and ImageNet: a folder per class, or a table of files and labels."""

import csv
from pathlib import Path

import torch

from deepbilevel_lab.data.image_set import ImagesOnDisk

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"})


def load_folder(directory: Path) -> ImagesOnDisk:
    """Read a folder that holds one folder per class; classes are numbered in the order of their names."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a folder; it should hold one folder of images per class")
    classes = sorted(entry.name for entry in directory.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not classes:
        raise ValueError(f"{directory} holds no folders; put the images of each class into a folder of its name")
    paths: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(classes):
        own = sorted(path for path in (directory / name).rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
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
    with table.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        if not {"path", "label"} <= set(columns):
            raise ValueError(f"{table} has the columns {', '.join(columns) or 'none'}; it needs path and label")
        rows = list(reader)
    for number, row in enumerate(rows, start=2):
        if any(not row[name] for name in ("path", "label", "clean_label") if name in columns):
            raise ValueError(f"{table}, line {number}: a path or label is empty; fill it in or remove the line")
    has_clean = "clean_label" in columns
    given = [row["label"] for row in rows]
    clean = [row["clean_label"] for row in rows] if has_clean else []
    names = sorted({*given, *clean}, key=_natural)
    number_of = {name: number for number, name in enumerate(names)}
    return ImagesOnDisk(
        paths=[table.parent / row["path"] for row in rows],
        labels=torch.tensor([number_of[name] for name in given], dtype=torch.int64),
        clean_labels=torch.tensor([number_of[name] for name in clean], dtype=torch.int64) if has_clean else None,
        class_names=tuple(names),
    )


def _natural(name: str) -> tuple[int, int, str]:
    # "10" comes after "9" where classes are numbers, and after them come names.
    return (0, int(name), "") if name.isdecimal() else (1, 0, name)
