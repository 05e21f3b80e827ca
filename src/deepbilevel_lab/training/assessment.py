"""How good the network of a finished run is: on its own test images, or on any others with labels.

This module knows which images are meant and counts; what is printed is for others to say.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from deepbilevel_lab.data import DATA_SETS, ImagesInMemory, LabelledSet, find_recipe
from deepbilevel_lab.data.augmentation import Split
from deepbilevel_lab.data.catalog import find_entry, load_samples
from deepbilevel_lab.data.subset import choose_in_proportion, take, with_classes
from deepbilevel_lab.data.table import TABLE_SUFFIXES, Table
from deepbilevel_lab.training.evaluation import make_metric, mean_average_precision
from deepbilevel_lab.training.prediction import Predictor
from deepbilevel_lab.training.sets import load_sets
from deepbilevel_lab.training.spec import RunSpec


@dataclass(frozen=True)
class Images:
    """Which images to take.

    Attributes:
        data: a data set of the catalog, a folder or a table; None takes those of the run.
        data_dir: where data sets stand; for images of one's own the place of the data, if it was given.
        split: a part; ``test`` and ``train`` without ``data`` are exactly what the run was tested and trained on.
        labels: a named label set, of training images.
        limit: so many, of every class in proportion; None is all, or the run's own limit.
    """

    data: str | None = None
    data_dir: Path | None = None
    split: str | None = None
    labels: str | None = None
    limit: int | None = None

    @property
    def is_run_test(self) -> bool:
        """Whether these are the images of the test figures in the run's record."""
        return self.data is None and self.split in (None, "test") and self.labels is None and self.limit is None


@dataclass(frozen=True)
class ClassScore:
    """One class: how many images carry it, and how many percent were found, or its average precision."""

    name: str
    images: int
    score: float | None
    clean_score: float | None


@dataclass(frozen=True)
class Assessment:
    """The result. Scores are in percent; the clean ones are against clean labels, where they are known."""

    data: str
    split: str
    metric: str
    images: int
    crops: int
    score: float | None
    clean_score: float | None
    classes: list[ClassScore]
    noun: str = "image"

    def to_plain(self) -> dict[str, Any]:
        """Return it as JSON knows it."""
        return {name: value for name, value in asdict(self).items() if name != "noun"}


def assess(
    predictor: Predictor,
    wanted: Images,
    fallback_dir: Path,
    *,
    crops: int | None = None,
    on_batch: Callable[[int, int], None] = lambda done, total: None,
) -> Assessment:
    """Score a network on images; ``fallback_dir`` is where data sets stand if ``wanted`` does not say."""
    spec = predictor.spec
    name, split, data = _load(spec, wanted, fallback_dir)
    predictor.check_kind(data)
    data = _with_classes(data, predictor)
    counted: Split = "train" if wanted.data is None and split == "train" else "test"
    if wanted.data is not None and find_recipe(spec.data.recipe).permutation_seed is not None:
        raise ValueError(
            f"recipe {spec.data.recipe!r} gives pixels an order by image; only the run's own images fit it"
        )
    if crops is None:
        crops = 1 if isinstance(data, (ImagesInMemory, Table)) or counted == "train" else spec.data.test_crops
    elif isinstance(data, (ImagesInMemory, Table)) and crops > 1:
        raise ValueError(f"--crops {crops} is for image files; these {data.noun}s are small, and seen whole")
    else:
        replace(spec.data, test_crops=crops)  # refuses crops that would all be the same
    feed = predictor.feed(data, split=counted)
    metric, kept, done = make_metric(feed), list[Tensor](), 0
    for indices, probabilities in predictor.probabilities(feed, crops=crops):
        metric.add(indices, probabilities)
        kept.append(probabilities if data.multi_label else probabilities.argmax(dim=1))
        done += len(indices)
        on_batch(done, len(data))
    scores = metric.result()
    return Assessment(
        data=name,
        split=split,
        metric="mAP" if data.multi_label else "accuracy",
        images=len(data),
        crops=crops,
        score=_number(scores["labels"]),
        clean_score=_number(scores["clean_labels"]) if "clean_labels" in scores else None,
        classes=_by_class(data, torch.cat(kept)),
        noun=data.noun,
    )


def _load(spec: RunSpec, wanted: Images, fallback_dir: Path) -> tuple[str, str, LabelledSet]:
    """Return the name of the data set, that of the split, and the images."""
    if wanted.data is not None:
        name, place = _find_place(wanted.data, wanted.data_dir, fallback_dir, of_table=spec.data.columns is not None)
        entry = find_entry(name)
        split = wanted.split or ("train" if wanted.labels else entry.test_split or entry.splits[0])
        columns = spec.data.columns and replace(spec.data.columns, ignore=())  # which need not be there
        data = load_samples(name, place, split, labels=wanted.labels, columns=columns)
        return wanted.data, split, _limited(data, wanted.limit)
    own, directory = spec.data, wanted.data_dir or fallback_dir
    if wanted.data_dir is not None and own.entry.own:
        own = replace(own, path=str(wanted.data_dir))
    split = wanted.split or ("train" if wanted.labels else "test")
    if split == "test" and own.entry.test_split is not None:
        data = load_samples(own.name, directory, own.entry.test_split, labels=wanted.labels)
        return own.name, split, _limited(data, wanted.limit or own.test_limit)
    if split in ("train", "test"):
        noise = spec.noise if wanted.labels is None else None
        own = replace(own, labels=wanted.labels or own.labels, test_limit=wanted.limit or own.test_limit)
        sets = load_sets(own, directory, noise=noise, seed=spec.seed)
        # Of what the run trained on, not of the data set: noise would fall on other images of a smaller part.
        return own.name, split, _limited(sets.train if split == "train" else sets.test, wanted.limit)
    data = load_samples(own.name, Path(own.path or directory), split, labels=wanted.labels, columns=own.columns)
    return own.name, split, _limited(data, wanted.limit)


def _find_place(data: str, data_dir: Path | None, fallback_dir: Path, *, of_table: bool) -> tuple[str, Path]:
    """Return the name in the catalog and the place, also where somebody named the place itself."""
    if of_table and data not in DATA_SETS and Path(data).suffix in TABLE_SUFFIXES:
        return "table", Path(data)
    if data not in DATA_SETS and Path(data).is_dir():
        return "folder", Path(data)
    if data not in DATA_SETS and Path(data).suffix == ".csv":
        return "csv", Path(data)
    if data in DATA_SETS and DATA_SETS[data].own and data_dir is None:
        raise ValueError(f"--data {data} needs the place of your images: add --data-dir, or give the place as --data")
    return data, data_dir or fallback_dir


def _limited(data: LabelledSet, limit: int | None) -> LabelledSet:
    return data if limit is None else take(data, choose_in_proportion(data.labels, limit))


def _with_classes(data: LabelledSet, predictor: Predictor) -> LabelledSet:
    """Return the images with the network's numbers for their classes, which are found by their names."""
    if data.multi_label != predictor.multi_label:
        one, several = "one label per image", "several labels per image"
        raise ValueError(
            f"the run was trained with {several if predictor.multi_label else one}, these images have "
            f"{several if data.multi_label else one}; choose other data"
        )
    return with_classes(data, predictor.class_names, "the network's")


def _by_class(data: LabelledSet, predicted: Tensor) -> list[ClassScore]:
    """Return the score of each class that some image carries."""
    score = _average_precision if data.multi_label else _share_found
    scores: list[ClassScore] = []
    for number, (name, count) in enumerate(zip(data.class_names, data.class_counts(), strict=True)):
        if count:
            clean = None if data.clean_labels is None else score(data, data.clean_labels, predicted, number)
            scores.append(ClassScore(name, count, score(data, data.labels, predicted, number), clean))
    return scores


def _share_found(data: LabelledSet, labels: Tensor, predicted: Tensor, number: int) -> float | None:
    own = predicted[labels == number]
    return _number(100 * (own == number).double().mean().item())


def _average_precision(data: LabelledSet, labels: Tensor, probabilities: Tensor, number: int) -> float | None:
    column = slice(number, number + 1)
    difficult = None if data.difficult is None else data.difficult[:, column]
    return _number(100 * mean_average_precision(probabilities[:, column], labels[:, column], difficult))


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value  # JSON has no word for it
