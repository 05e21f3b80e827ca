"""Writes small data sets in the layouts in which the real ones are published: real pickles, JPEGs, lists and XML."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
from PIL import Image

from deepbilevel.data.cifar import CIFAR10, CIFAR100, CifarRelease
from deepbilevel.data.clothing1m import CLASS_NAMES as CLOTHES
from deepbilevel.data.voc import CLASS_NAMES as OBJECTS

RANDOM = np.random.RandomState(0)


def write_jpeg(path: Path, size: tuple[int, int] = (40, 30), brightness: int = 128) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = RANDOM.randint(0, 40, (size[1], size[0], 3)) + min(brightness, 215)
    Image.fromarray(pixels.astype(np.uint8)).save(path)


def write_cifar(root: Path, release: CifarRelease, per_batch: int = 20) -> dict[str, str]:
    """Write all files of a release and return their checksums, which stand in for the published ones."""
    folder = root / release.folder
    folder.mkdir(parents=True)
    num_classes = 100 if release is CIFAR100 else 10
    names = [f"class {i}".encode() for i in range(num_classes)]
    contents = {release.meta_file: {release.class_names_key: names}}
    for files in release.splits.values():
        for file in files:
            labels = [i % num_classes for i in range(max(per_batch, num_classes))]
            pixels = np.repeat(np.array(labels, dtype=np.uint8)[:, None], 3072, axis=1)  # an image shows its label
            contents[file] = {b"data": pixels, release.label_key: labels}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content, protocol=4))
    return {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in contents}


def write_voc(root: Path, per_split: int = 24) -> None:
    base = root / "VOCdevkit" / "VOC2007"
    (base / "ImageSets" / "Main").mkdir(parents=True)
    (base / "Annotations").mkdir()
    for start, split in ((0, "trainval"), (500, "test")):
        keys = [f"{start + i:06}" for i in range(per_split)]
        for i, key in enumerate(keys):
            write_jpeg(base / "JPEGImages" / f"{key}.jpg")
            objects = f"<object><name>{OBJECTS[i % 20]}</name><difficult>0</difficult></object>"
            objects += f"<object><name>{OBJECTS[(i + 7) % 20]}</name><difficult>1</difficult></object>"
            (base / "Annotations" / f"{key}.xml").write_text(f"<annotation>{objects}</annotation>")
        for number, name in enumerate(OBJECTS):
            value = {number: 1, (number - 7) % 20: 0}
            lines = [f"{key} {value.get(i % 20, -1):2d}" for i, key in enumerate(keys)]
            (base / "ImageSets" / "Main" / f"{name}_{split}.txt").write_text("\n".join(lines) + "\n")


def write_imagenet(root: Path) -> None:
    for split, count in (("train", 4), ("val", 2)):
        for number, wnid in enumerate(("n01440764", "n02102040", "n02979186")):
            for i in range(count):
                write_jpeg(root / split / wnid / f"{wnid}_{i}.JPEG", brightness=40 * number)


def write_clothing1m(root: Path, per_split: int = 28) -> None:
    for split in ("noisy_train", "clean_train", "clean_val", "clean_test"):
        keys = [f"images/{i % 10}/{i:02}/{split},{i}.jpg" for i in range(per_split)]
        for key in keys:
            write_jpeg(root / key)
        (root / f"{split}_key_list.txt").write_text("\n".join(keys) + "\n")
        with (root / f"{split.split('_')[0]}_label_kv.txt").open("a") as file:
            file.writelines(f"{key} {i % len(CLOTHES)}\n" for i, key in enumerate(keys))


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


def write(name: str, root: Path, monkeypatch) -> Path:
    """Write the data set of this name and return what to give as its directory."""
    if name in ("cifar10", "cifar100"):
        release = CIFAR10 if name == "cifar10" else CIFAR100
        for file, checksum in write_cifar(root, release).items():
            monkeypatch.setitem(release.checksums, file, checksum)
        return root
    if name == "csv":
        return write_csv(root)
    if name != "digits":
        WRITERS[name](root)
    return root


WRITERS = {"voc2007": write_voc, "imagenet": write_imagenet, "clothing1m": write_clothing1m, "folder": write_folder}
