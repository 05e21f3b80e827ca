"""Writes small data sets for tests: the published layouts as ``made_data`` has them, and images of one's own."""

from pathlib import Path

import numpy as np
from PIL import Image

from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100
from deepbilevel_paper.made_data import write_cifar, write_clothing1m, write_imagenet, write_voc

RANDOM = np.random.RandomState(0)


def write_jpeg(path: Path, size: tuple[int, int] = (40, 30), brightness: int = 128) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RANDOM.randint(0, 40, (size[1], size[0], 3)) + min(brightness, 215)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def write_folder(root: Path) -> None:
    for name in ("cat", "dog"):
        for i in range(5):
            write_jpeg(root / name / f"{i}.jpg")
    (root / "dog" / "notes.txt").write_text("not an image")


def write_csv(root: Path) -> Path:
    rows = ["path,label,clean_label"]
    for i in range(6):
        write_jpeg(root / "pictures" / f"{i}.png")
        rows.append(f"pictures/{i}.png,{'ab'[i % 2]},{'ab'[i // 3]}")
    table = root / "table.csv"
    table.write_text("\n".join(rows) + "\n")
    return table


def write(name: str, root: Path) -> Path:
    """Write the data set of this name and return what to give as its directory."""
    if name == "csv":
        return write_csv(root)
    if name != "digits":
        WRITERS[name](root)
    return root


WRITERS = {
    "cifar10": lambda root: write_cifar(root, CIFAR10),
    "cifar100": lambda root: write_cifar(root, CIFAR100),
    "voc2007": write_voc,
    "imagenet": write_imagenet,
    "clothing1m": write_clothing1m,
    "folder": write_folder,
}
