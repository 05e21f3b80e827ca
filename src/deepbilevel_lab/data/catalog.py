"""The catalog of data sets: everything that is known of one before it is read, and how to read it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from deepbilevel.checks import choose
from deepbilevel_lab.data.cifar import CIFAR10, CIFAR100, CifarRelease, label_sets, load_cifar, load_human_labels
from deepbilevel_lab.data.decisions import apply_decisions, are_decisions
from deepbilevel_lab.data.digits import load_digits_split
from deepbilevel_lab.data.image_files import (
    CLOTHING_SPLITS,
    load_clothing1m,
    load_csv,
    load_folder,
    load_imagenet,
    load_voc2007,
)
from deepbilevel_lab.data.image_set import ImageSet
from deepbilevel_lab.data.labelled_set import LabelledSet
from deepbilevel_lab.data.table import ColumnsSpec, load_table


@dataclass(frozen=True)
class DataEntry:
    """A data set of the catalog.

    Attributes:
        description: one line.
        splits: the names of its parts; the first is trained on.
        load: reads a split from a directory.
        release: what can be downloaded, if anything.
        image_shape: channels, height and width where all images have the same; the others are files to be decoded.
        test_split: the part that is tested on; where there is none, a share of the images is set aside.
        multi_label: whether an image can have several labels.
        num_images: how many images each split has, where that is published.
        signs: places under the directory that show that the data set is there; of each group of alternatives, one
            must exist.
        remedy: how to get it; ``{dir}`` stands for the directory.
        network: the name of the network it is usually trained with.
        holds: what its samples are: images, the rows of a table, or whatever a ``Dataset`` in Python returns.
    """

    description: str
    splits: tuple[str, ...]
    load: Callable[[Path, str], LabelledSet]
    release: CifarRelease | None = None
    image_shape: tuple[int, int, int] | None = None
    test_split: str | None = None
    multi_label: bool = False
    num_images: Mapping[str, int] = field(default_factory=dict[str, int])
    signs: tuple[tuple[str, ...], ...] = ()
    remedy: str = ""
    network: str = "cifarnet"
    holds: Literal["images", "rows", "items"] = "images"

    @property
    def own(self) -> bool:
        """Whether these are the user's own samples, so that only their place says which they are."""
        return self.test_split is None

    def is_in(self, directory: Path) -> bool:
        """Whether a directory holds it; files are looked for and not opened."""
        return all(any((directory / place).exists() for place in places) for places in self.signs)


def _ignoring_split(load: Callable[[Path], LabelledSet]) -> Callable[[Path, str], LabelledSet]:
    return lambda directory, split: load(directory)


def _only_from_python(directory: Path, split: str) -> LabelledSet:
    raise ValueError(
        "the data of this run was a Dataset in Python, which no file holds; pass it again: train(spec, data=...), or "
        "load_model(...) and your own loop"
    )


def _cifar(description: str, release: CifarRelease) -> DataEntry:
    return DataEntry(
        description,
        ("train", "test"),
        partial(load_cifar, release),
        release,
        image_shape=(3, 32, 32),
        test_split="test",
        num_images={"train": 50_000, "test": 10_000},
        signs=((f"{release.folder}/{release.meta_file}", release.meta_file),),
        remedy=f"deepbilevel data fetch {release.name} --dir {{dir}}",
    )


DATA_SETS: dict[str, DataEntry] = {
    "digits": DataEntry(
        "1,797 handwritten digits, embedded",
        ("train", "test"),
        load_digits_split,
        image_shape=(1, 8, 8),
        test_split="test",
        num_images={"train": 1_347, "test": 450},
        network="digit_cnn",
    ),
    "cifar10": _cifar("60,000 32x32 images, 10 classes", CIFAR10),
    "cifar100": _cifar("the same in 100 classes", CIFAR100),
    "voc2007": DataEntry(
        "PASCAL VOC 2007, 20 classes, multi-label",
        ("trainval", "test"),
        load_voc2007,
        test_split="test",
        multi_label=True,
        num_images={"trainval": 5_011, "test": 4_952},
        signs=(tuple(f"{root}ImageSets/Main/dog_test.txt" for root in ("VOCdevkit/VOC2007/", "VOC2007/", "")),),
        remedy="fetch VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar from "
        "http://host.robots.ox.ac.uk/pascal/VOC/voc2007; unpack both in {dir}",
        network="alexnet",
    ),
    "imagenet": DataEntry(
        "ImageNet, a folder per wnid",
        ("train", "val"),
        load_imagenet,
        test_split="val",
        num_images={"train": 1_281_167, "val": 50_000},
        signs=(("train",), ("val",)),
        remedy="fetch ILSVRC2012 from https://image-net.org, which asks for an account; unpack the training images "
        "into {dir}/train/<wnid>/ and sort the validation images into {dir}/val/<wnid>/",
        network="alexnet",
    ),
    "clothing1m": DataEntry(
        "Clothing1M, noisy and clean labels",
        CLOTHING_SPLITS,
        load_clothing1m,
        test_split="clean_test",
        # As in the lists that are given out; the paper rounds them.
        num_images={"noisy_train": 1_000_000, "clean_train": 47_570, "clean_val": 14_313, "clean_test": 10_526},
        signs=(("noisy_train_key_list.txt",), ("clean_test_key_list.txt",), ("images",)),
        remedy="its authors give it out on request (https://github.com/Cysu/noisy_label); unpack its lists and images "
        "in {dir}",
        network="resnet50",
    ),
    "folder": DataEntry(
        "your images, a folder per class", ("all",), _ignoring_split(load_folder), network="small_resnet"
    ),
    "csv": DataEntry(
        "your images, a table path,label[,clean_label]", ("all",), _ignoring_split(load_csv), network="small_resnet"
    ),
    "table": DataEntry(
        "your table of numbers or text", ("all",), _ignoring_split(load_table), network="mlp", holds="rows"
    ),
    "dataset": DataEntry("your Dataset, from Python", ("all",), _only_from_python, network="mlp", holds="items"),
}


def find_entry(name: str) -> DataEntry:
    """Return a catalog entry; an unknown name gets the nearest one."""
    return DATA_SETS[choose("data set", name, DATA_SETS)]


def load_data(
    name: str, directory: Path | str = ".", split: str | None = None, *, labels: str | None = None
) -> ImageSet:
    """Load a split of a data set of the catalog, the training split by default.

    >>> digits = load_data("digits", split="test")
    >>> len(digits), digits.num_classes
    (450, 10)

    Args:
        name: a name of the catalog.
        directory: where the data set was unpacked; the folder or the table itself for images of one's own.
        split: a part of the data set.
        labels: a named label set instead of the published one, ``"worst"`` of CIFAR-10N for instance; the published
            labels are then the ``clean_labels``. Or a ``.csv`` table of what a person decided in an audit.
    """
    data = load_samples(name, directory, split, labels=labels)
    if not isinstance(data, ImageSet):
        raise ValueError(f"{name} holds {data.noun}s, not images; load_samples loads them")
    return data


def load_samples(
    name: str,
    directory: Path | str = ".",
    split: str | None = None,
    *,
    labels: str | None = None,
    columns: ColumnsSpec | None = None,
) -> LabelledSet:
    """Load a split of any data set of the catalog, tables included.

    Args:
        name: see :func:`load_data`, as of the three that follow.
        directory: of a table, the table itself.
        split: a part of the data set.
        labels: other labels.
        columns: what the columns of a table are for.
    """
    entry = find_entry(name)
    split = entry.splits[0] if split is None else choose(f"split of {name}", split, entry.splits)
    is_table = entry.holds == "rows"
    data = load_table(Path(directory), columns) if is_table else entry.load(Path(directory), split)
    if labels is not None and are_decisions(labels):
        data = apply_decisions(data, Path(labels), Path(directory))
    elif labels is not None:
        choose(f"label set of {name}", labels, label_sets(name))
        if split != "train":
            raise ValueError(f"the label set {labels!r} is of the training images, not of split {split!r}")
        human = load_human_labels(name, Path(directory), labels, data.labels)
        data = replace(data, labels=human, clean_labels=data.labels)
    data.check_labels()
    return data
