"""A trained network at work: which class images belong to, seen as the network saw its training images.

This module knows files, data sets and probabilities; it does not know what is printed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from deepbilevel_lab.data import ImagesInMemory, ImagesOnDisk, LabelledSet, find_recipe
from deepbilevel_lab.data.augmentation import Split
from deepbilevel_lab.data.decode import resize_and_center_crop
from deepbilevel_lab.data.image_files import IMAGE_SUFFIXES, read_table
from deepbilevel_lab.data.table import MISSING, TABLE_SUFFIXES, ColumnsSpec, Table, mark_missing, read_columns
from deepbilevel_lab.data.views import View, ViewMode, find_view
from deepbilevel_lab.training.devices import find_device, make_autocast
from deepbilevel_lab.training.evaluation import predict
from deepbilevel_lab.training.feeding import Feed
from deepbilevel_lab.training.model_file import TrainedModel
from deepbilevel_lab.training.sets import find_tokenizer
from deepbilevel_lab.training.spec import RunSpec

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class StoredShape(View):
    """The middle square at the size of a data set whose images are all alike; of one channel, grey.

    >>> from PIL import Image
    >>> StoredShape(8, channels=1)(Image.new("RGB", (40, 30), "white"), "test", torch.Generator()).shape
    torch.Size([1, 8, 8])
    """

    channels: int = 3

    def __call__(self, image: "Image", mode: ViewMode, generator: torch.Generator) -> Tensor:
        """See :class:`View`."""
        if self.channels == 1:
            image = image.convert("L").convert("RGB")
        return resize_and_center_crop(image, self.size, self.size)[: self.channels]


class Predictor:
    """A trained network on the device of its run, or on the CPU where this machine has no such device.

    Attributes:
        note: what a person should know about it, if anything.
    """

    def __init__(self, trained: TrainedModel) -> None:
        self.note = ""
        spec = trained.spec
        try:
            device = find_device(spec.device)
        except ValueError:
            self.note = f"the run was trained on {spec.device}, which this machine lacks; the CPU is used"
            spec, device = replace(spec, device="cpu", precision="float32"), torch.device("cpu")
        torch.set_num_threads(spec.threads)  # other numbers of threads give other last digits
        self.spec = spec
        self.class_names = trained.class_names
        self.encoding = trained.encoding
        self._tokenizer = find_tokenizer(spec.network, spec.data.columns)
        self._device = device
        self._network = trained.network.to(device)
        self._autocast = make_autocast(spec)

    @property
    def multi_label(self) -> bool:
        """Whether an image can have several labels."""
        return self.spec.data.entry.multi_label

    def feed(self, data: LabelledSet, *, split: Split = "test", workers: int = 0, skip_bad: bool = False) -> Feed:
        """Return the way of images or rows to this network; refuses those it cannot take."""
        self.check_kind(data)
        view = None
        if self.encoding is not None and isinstance(data, Table):
            data = self.encoding.encode(data, self._tokenizer)
        else:
            view = None if isinstance(data, ImagesInMemory) else _view_of(self.spec)
            self._check_fit(data, view)
        return Feed(
            data,
            find_recipe(self.spec.data.recipe),
            view,
            split=split,
            seed=self.spec.seed,
            device=self._device,
            workers=workers,
            skip_bad=skip_bad,
        )

    def probabilities(self, feed: Feed, *, crops: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``(indices, probabilities)`` for all images in order."""
        for indices, probabilities in predict(self._network, feed, crops=crops, autocast=self._autocast):
            if not bool(probabilities.isfinite().all()):  # the first class would win; weights can do that and be finite
                raise ValueError(
                    f"the network's answer for {feed.data.noun} {int(indices[0])} or one after it is not a number; its "
                    "file is damaged or its training diverged: fetch a copy, or train it again"
                )
            yield indices, probabilities

    def check_kind(self, data: LabelledSet) -> None:
        """Refuse images where rows are wanted, and rows where images are."""
        if (self.encoding is not None) != isinstance(data, Table):
            raise ValueError(
                f"the run was trained on {'images' if self.encoding is None else 'a table'}, and these are "
                f"{data.noun}s; choose other data"
            )

    def _check_fit(self, data: LabelledSet, view: View | None) -> None:
        if view is not None or not isinstance(data, ImagesInMemory):
            return  # a view makes images of the right size
        expected = self.spec.input_shape
        numbers = torch.zeros(1, dtype=torch.int64)
        try:
            seen = find_recipe(self.spec.data.recipe).apply("test", data.images[:1], indices=numbers, split="test")
            problem = "" if tuple(seen.shape[1:]) == expected else f"become {_times(seen.shape[1:])}"
        except ValueError as error:
            problem = f"cannot be used: {error}"
        if problem:
            raise ValueError(
                f"the run's network {self.spec.network.name} takes images of {_times(expected)}, but images of "
                f"{_times(data.images.shape[1:])} by its recipe {self.spec.data.recipe!r} {problem}; choose other data"
            )


@dataclass(frozen=True)
class Asked:
    """One of the images or rows to predict.

    Attributes:
        place: the file; of a row of a table its number, counted from 0.
        given: the label that a table gives it, if it does.
    """

    place: str
    given: str | None = None


def find_images(inputs: Iterable[Path]) -> list[Asked]:
    """Return image files in order: files as given, those in folders by name, those in tables by line."""
    found: list[Asked] = []
    for place in inputs:
        if place.is_dir():
            # Hidden files are what systems leave behind, such as the ._photo.jpg of macOS.
            own = sorted(
                path
                for path in place.rglob("*")
                if path.suffix.lower() in IMAGE_SUFFIXES and not path.name.startswith(".") and path.is_file()
            )
            if not own:
                raise ValueError(f"{place} holds no image ({', '.join(sorted(IMAGE_SUFFIXES))}); give another folder")
            found += [Asked(str(path)) for path in own]
        elif place.suffix.lower() == ".csv":
            found += _paths_in_table(place)
        else:
            found.append(Asked(str(place)))
    return found


def predict_table(predictor: Predictor, path: Path, *, skip_bad: bool = False) -> Iterator[tuple[Asked, Tensor | str]]:
    """Yield each row of a table with the probabilities of its classes, or with what is wrong with it."""
    encoding = predictor.encoding
    assert encoding is not None
    if path.suffix.lower() not in TABLE_SUFFIXES:
        raise ValueError(f"the run was trained on a table, and {path} is none; give a .csv or .parquet file")
    columns = read_columns(path)
    if lacking := encoding.missing_columns(columns):
        raise ValueError(f"{path} lacks the column {lacking[0]!r}, which the run was trained with; add it")
    given = [None if cell.strip().lower() in MISSING else cell.strip() for cell in columns.pop(encoding.target, [])]
    used = {column.name: columns[column.name] for column in encoding.columns}
    used = mark_missing(used, but=encoding.text)
    problems = encoding.problems(used)
    if problems and not skip_bad:
        row = min(problems)
        raise ValueError(f"{path}, row {row}: {problems[row]}; correct it, or leave such rows out with --skip-bad")
    num_rows = len(next(iter(used.values())))
    good = [row for row in range(num_rows) if row not in problems]
    asked = [Asked(str(row), given[row] if given else None) for row in range(num_rows)]
    for row in problems:
        yield asked[row], f"{path}, row {row}: {problems[row]}"
    if not good:
        return
    table = Table(
        columns={name: [cells[row] for row in good] for name, cells in used.items()},
        labels=torch.zeros(len(good), dtype=torch.int64),  # are not looked at
        class_names=predictor.class_names,
        spec=ColumnsSpec(encoding.target, encoding.text),
    )
    for indices, probabilities in predictor.probabilities(predictor.feed(table), crops=1):
        for index, row in zip(indices.tolist(), probabilities, strict=True):
            yield asked[good[index]], row


def predict_files(
    predictor: Predictor, asked: Sequence[Asked], *, workers: int = 0, skip_bad: bool = False
) -> Iterator[tuple[Asked, Tensor | str]]:
    """Yield each file with the probabilities of its classes, or with what is wrong with it if bad ones are skipped."""
    if find_recipe(predictor.spec.data.recipe).permutation_seed is not None:
        raise ValueError(
            f"recipe {predictor.spec.data.recipe!r} gives the pixels of every image an order that belongs to its "
            "number in the data set; a file has no number, so nothing can be said about it"
        )
    if predictor.spec.data.entry.holds != "images":
        raise ValueError(
            "the run was trained on a Dataset in Python, which files cannot stand for; use load_model(...)"
        )
    paths = [Path(each.place) for each in asked]
    shape = (len(paths), len(predictor.class_names)) if predictor.multi_label else (len(paths),)
    # Labels are not looked at: they only say whether there can be several.
    data = ImagesOnDisk(paths=paths, labels=torch.zeros(shape, dtype=torch.int64), class_names=predictor.class_names)
    feed = predictor.feed(data, workers=workers, skip_bad=skip_bad)
    for indices, probabilities in predictor.probabilities(feed, crops=predictor.spec.data.test_crops):
        for index, row in zip(indices.tolist(), probabilities, strict=True):
            yield asked[index], feed.bad.get(index, row)


def _view_of(spec: RunSpec) -> View:
    if spec.data.view is not None:
        return find_view(spec.data.view, spec.network_side)
    shape = spec.data.entry.image_shape
    assert shape is not None  # a spec without view has images of one shape
    return StoredShape(shape[1], channels=shape[0])


def _paths_in_table(table: Path) -> list[Asked]:
    columns, rows = read_table(table)
    if "path" not in columns:
        raise ValueError(f"{table} has the columns {', '.join(columns) or 'none'}; it needs path")
    paths = [row["path"] for row in rows]
    if not paths:
        raise ValueError(f"{table} has no lines below its header; name an image file in each")
    for number, path in enumerate(paths, start=2):
        if not path:
            raise ValueError(f"{table}, line {number}: the path is empty; fill it in or remove the line")
    return [Asked(str(table.parent / row["path"]), row.get("label") or None) for row in rows]


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
