"""Made images in the layouts in which the real data sets are published: real pickles, JPEGs, lists and XML.

They are for trying things out in seconds. Every class has a coarse coloured pattern of its own, so that a network can
learn something; that is all they have in common with photographs. Needs Pillow.
"""

import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from deepbilevel.checks import choose
from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100, CifarRelease, made_class_names
from deepbilevel_lab.data.image_files import CLOTHING_CLASSES as CLOTHES
from deepbilevel_lab.data.image_files import CLOTHING_SPLITS
from deepbilevel_lab.data.image_files import VOC_CLASSES as OBJECTS
from deepbilevel_lab.data.made_pictures import make_picture, make_rows

_Pixels = npt.NDArray[np.uint8]
_WNIDS = ("n01440764", "n02102040", "n02979186")


def write_cifar(root: Path, release: CifarRelease, *, per_batch: int = 20) -> None:
    """Write all files of a release, ``per_batch`` images in each and at least one of every class."""
    folder = root / release.folder
    folder.mkdir(parents=True)
    names = made_class_names(release)
    labels = [number % len(names) for number in range(max(per_batch, len(names)))]
    contents: dict[str, dict[bytes, Any]] = {release.meta_file: {release.class_names_key: names}}
    files = [file for split in release.splits.values() for file in split]
    for place, file in enumerate(files):
        contents[file] = {b"data": make_rows(labels, place * len(labels)), release.label_key: labels}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))


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
    """Write the synthetic data sets of these names into a folder, as large as the scale ``smoke`` wants them.

    Those that are there already are left; real data is never touched: a folder that holds any is refused.
    """
    for name in names:
        sign, write = _WRITERS[choose("synthetic data set", name, _WRITERS)]
        done = root / f"made-{name}.done"
        if done.exists():
            continue
        if (root / sign).exists():
            raise FileExistsError(
                f"{root / sign} exists and is not known to be synthetic; name another folder for synthetic images, or "
                "remove it"
            )
        root.mkdir(parents=True, exist_ok=True)
        write(root)
        done.touch()
