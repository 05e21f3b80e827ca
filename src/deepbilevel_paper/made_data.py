"""Made images in the layouts in which the real data sets are published: real pickles, JPEGs, lists and XML.

They are for trying things out in seconds. Every class has a coarse coloured pattern of its own, so that a network can
learn something; that is all they have in common with photographs. Needs Pillow.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from deepbilevel.checks import choose
from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100, MADE_LIST, MADE_PREFIX, CifarRelease
from deepbilevel_lab.data.image_files import CLOTHING_CLASSES as CLOTHES
from deepbilevel_lab.data.image_files import CLOTHING_SPLITS
from deepbilevel_lab.data.image_files import VOC_CLASSES as OBJECTS

_Pixels = npt.NDArray[np.uint8]
_TILES = 4  # of a pattern, along each side
_WNIDS = ("n01440764", "n02102040", "n02979186")


def make_picture(class_number: int, number: int, *, width: int = 40, height: int = 30) -> _Pixels:
    """Return a picture of a class, ``[height, width, 3]``: the pattern of the class under noise of its own.

    >>> make_picture(3, 0).shape
    (30, 40, 3)
    """
    pattern = np.random.RandomState(class_number).randint(40, 216, (_TILES, _TILES, 3))
    rows, columns = (np.arange(size) * _TILES // size for size in (height, width))
    noise = np.random.RandomState((class_number, number)).randint(-40, 40, (height, width, 3))
    return (pattern[rows][:, columns] + noise).astype(np.uint8)


def write_cifar(root: Path, release: CifarRelease, *, per_batch: int = 20) -> None:
    """Write all files of a release, ``per_batch`` images in each and at least one of every class."""
    folder = root / release.folder
    folder.mkdir(parents=True)
    num_classes = 100 if release is CIFAR100 else 10
    labels = [number % num_classes for number in range(max(per_batch, num_classes))]
    names = [MADE_PREFIX + f"class {number}".encode() for number in range(num_classes)]
    contents: dict[str, dict[bytes, Any]] = {release.meta_file: {release.class_names_key: names}}
    files = [file for split in release.splits.values() for file in split]
    for place, file in enumerate(files):
        first = place * len(labels)
        pictures = [make_picture(label, first + i, width=32, height=32) for i, label in enumerate(labels)]
        rows = np.stack(pictures).transpose(0, 3, 1, 2).reshape(len(labels), -1)
        contents[file] = {b"data": rows, release.label_key: labels}
    lines: list[str] = []
    for name, content in contents.items():
        written = pickle.dumps(content, protocol=4)
        (folder / name).write_bytes(written)
        lines.append(f"{hashlib.md5(written, usedforsecurity=False).hexdigest()}  {name}\n")
    (folder / MADE_LIST).write_text("".join(lines), encoding="utf-8")


def write_voc(root: Path, *, per_split: int = 24, test: int | None = None) -> None:
    """Write VOC 2007: every image has an object of one class, and a difficult one of another."""
    base = root / "VOCdevkit" / "VOC2007"
    (base / "ImageSets" / "Main").mkdir(parents=True)
    (base / "Annotations").mkdir()
    for start, split, count in ((0, "trainval", per_split), (500, "test", per_split if test is None else test)):
        keys = [f"{start + number:06}" for number in range(count)]
        for number, key in enumerate(keys):
            own, difficult = number % 20, (number + 7) % 20
            _write_jpeg(base / "JPEGImages" / f"{key}.jpg", make_picture(own, start + number))
            objects = f"<object><name>{OBJECTS[own]}</name><difficult>0</difficult></object>"
            objects += f"<object><name>{OBJECTS[difficult]}</name><difficult>1</difficult></object>"
            (base / "Annotations" / f"{key}.xml").write_text(f"<annotation>{objects}</annotation>")
        for label, name in enumerate(OBJECTS):
            value = {label: 1, (label - 7) % 20: 0}
            lines = [f"{key} {value.get(number % 20, -1):2d}" for number, key in enumerate(keys)]
            (base / "ImageSets" / "Main" / f"{name}_{split}.txt").write_text("\n".join(lines) + "\n")


def write_imagenet(root: Path, *, per_class: int = 4) -> None:
    """Write ImageNet with three classes, ``per_class`` images of each to train on and half as many to test on."""
    for split, count in (("train", per_class), ("val", per_class // 2)):
        for label, wnid in enumerate(_WNIDS):
            for number in range(count):
                seen = number if split == "train" else per_class + number
                _write_jpeg(root / split / wnid / f"{wnid}_{number}.JPEG", make_picture(label, seen))


def write_clothing1m(root: Path, *, per_split: int = 28) -> None:
    """Write Clothing1M; in its noisy part every fourth label is that of the next class."""
    for place, split in enumerate(CLOTHING_SPLITS):
        keys = [f"images/{i % 10}/{i:02}/{split},{i}.jpg" for i in range(per_split)]
        labels = [i % len(CLOTHES) for i in range(per_split)]
        for i, (key, label) in enumerate(zip(keys, labels, strict=True)):
            _write_jpeg(root / key, make_picture(label, place * per_split + i))
        if split == "noisy_train":
            labels = [(label + (i % 4 == 3)) % len(CLOTHES) for i, label in enumerate(labels)]
        (root / f"{split}_key_list.txt").write_text("\n".join(keys) + "\n")
        with (root / f"{split.split('_')[0]}_label_kv.txt").open("a") as file:
            file.writelines(f"{key} {label}\n" for key, label in zip(keys, labels, strict=True))


def _write_jpeg(path: Path, pixels: _Pixels) -> None:
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


_WRITERS: Mapping[str, tuple[str, Callable[[Path], None]]] = MappingProxyType(
    {
        "cifar10": (CIFAR10.folder, lambda root: write_cifar(root, CIFAR10)),
        "cifar100": (CIFAR100.folder, lambda root: write_cifar(root, CIFAR100, per_batch=200)),
        "voc2007": ("VOCdevkit", lambda root: write_voc(root, per_split=200, test=40)),
        "imagenet": ("train", lambda root: write_imagenet(root, per_class=32)),
        "clothing1m": ("noisy_label_kv.txt", lambda root: write_clothing1m(root, per_split=56)),
    }
)


def make_data(root: Path, names: Iterable[str]) -> None:
    """Write the made data sets of these names into a folder, as large as the scale ``smoke`` wants them.

    Those that are there already are left; real data is never touched: a folder that holds any is refused.
    """
    for name in names:
        sign, write = _WRITERS[choose("made data set", name, _WRITERS)]
        done = root / f"made-{name}.done"
        if done.exists():
            continue
        if (root / sign).exists():
            raise FileExistsError(
                f"{root / sign} is there, and not known to be made; name another folder for made images, or remove it"
            )
        root.mkdir(parents=True, exist_ok=True)
        write(root)
        done.touch()
