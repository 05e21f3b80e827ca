"""What a person decided about labels, as the page of an audit saves it: accepted, kept, changed or dropped."""

from dataclasses import replace
from os.path import normpath
from pathlib import Path

import torch

from deepbilevel.checks import choose
from deepbilevel_lab.data.image_files import read_table
from deepbilevel_lab.data.image_set import ImagesOnDisk
from deepbilevel_lab.data.labelled_set import LabelledSet
from deepbilevel_lab.data.subset import take

DECISIONS = ("accept", "keep", "relabel", "drop")
_COLUMNS = ("decision", "new_label")


def are_decisions(labels: str | None) -> bool:
    """Whether the name of a label set is the path of such a table.

    >>> are_decisions("audit/corrected.csv"), are_decisions("worst")
    (True, False)
    """
    return labels is not None and labels.lower().endswith(".csv")


def names_in(data: LabelledSet, directory: Path) -> list[str]:
    """Return the file of each image as people know it: as seen from the folder or the table of the data set."""
    if not isinstance(data, ImagesOnDisk):
        return [""] * len(data)
    root = directory if directory.is_dir() else directory.parent
    return [str(path.relative_to(root)) if path.is_relative_to(root) else str(path) for path in data.paths]


def apply_decisions(data: LabelledSet, table: Path, directory: Path) -> LabelledSet:
    """Return the images with the labels a person decided on, and without those that were dropped.

    Args:
        data: a whole data set.
        table: with the columns ``index`` or ``path``, ``decision`` and ``new_label``; ``given_label``, where it is
            there, must be the label that the image has. Where images have several labels, ``class_index`` names the
            class that a line is about, and labels are 1 or 0: whether the image has it.
        directory: of the data set, from which paths in the table are seen.
    """
    if not table.is_file():
        raise FileNotFoundError(f"labels {table} is not a file; save it on the page of an audit")
    columns, rows = read_table(table)
    needed = ("class_index", *_COLUMNS) if data.multi_label else _COLUMNS
    if not set(columns).issuperset(needed) or not set(columns) & {"index", "path"}:
        raise ValueError(
            f"{table} has the columns {', '.join(columns) or 'none'}; it needs {', '.join(needed)} and index or path, "
            "as the page of an audit saves them"
        )
    places = {normpath(name): place for place, name in enumerate(names_in(data, directory)) if name}
    decided = _Decided(data)
    for line, row in enumerate(rows, start=2):
        where = f"{table}, line {line}"
        decided.add(row, _find(row, places, len(data), where), line, where)
    return decided.result()


class _Decided:
    """The labels of a data set under decision, a line of the table at a time."""

    def __init__(self, data: LabelledSet) -> None:
        self._data = data
        self._labels = data.labels.clone()
        self._difficult = None if data.difficult is None else data.difficult.clone()
        self._dropped = set[int]()
        self._lines = dict[tuple[int, ...], int]()

    def add(self, row: dict[str, str], place: int, line: int, where: str) -> None:
        """Take over a line about one image; ``where`` says which line for messages."""
        data = self._data
        # One label, that of an image, or that of an image and a class.
        cell = (place, _number(row["class_index"], data, where)) if data.multi_label else (place,)
        what = f"{data.noun} {place}" + "".join(f" with class {data.class_names[each]!r}" for each in cell[1:])
        if cell in self._lines:
            raise ValueError(f"{where}: {what} is there already, in line {self._lines[cell]}; remove one of them")
        self._lines[cell] = line
        if row.get("given_label") and (given := self._read(row["given_label"], where)) != data.labels[cell]:
            raise ValueError(
                f"{where}: {what} has the label {self._show(int(data.labels[cell]))!r}, and had {self._show(given)!r} "
                "when it was audited; audit these labels, without noise, and decide again"
            )
        decision = choose(f"decision in {where}", row["decision"] or "", DECISIONS)
        if decision == "drop":
            self._dropped.add(place)
            return
        self._labels[cell] = self._read(row["new_label"], where)
        if self._difficult is not None and decision != "keep":
            self._difficult[cell] = False  # a person has seen it

    def result(self) -> LabelledSet:
        """Return the data set as decided."""
        corrected = replace(self._data, labels=self._labels, difficult=self._difficult)
        if not self._dropped:
            return corrected
        return take(corrected, torch.tensor([place for place in range(len(corrected)) if place not in self._dropped]))

    def _read(self, label: str | None, where: str) -> int:
        if not self._data.multi_label:
            return _number(label, self._data, where)
        if label not in ("0", "1"):
            raise ValueError(f"{where}: of several labels each is 1 or 0, got {label!r}; 1 if the image has the class")
        return int(label)

    def _show(self, label: int) -> str:
        return str(label) if self._data.multi_label else self._data.class_names[label]


def _find(row: dict[str, str], places: dict[str, int], num_images: int, where: str) -> int:
    """Return which image a row is about; its path must be that of its index, where both are there."""
    index, path = row.get("index") or "", row.get("path") or ""
    by_path = places.get(normpath(path)) if path else None
    if path and by_path is None:
        raise ValueError(f"{where}: no image of the data set has the path {path!r}; is the table of other data?")
    if index and not (index.isdecimal() and int(index) < num_images):
        raise ValueError(f"{where}: index must be a number from 0 to {num_images - 1}, got {index!r}")
    if not index and not path:
        raise ValueError(f"{where}: index and path are empty; fill one of them in or remove the line")
    if by_path is None:
        return int(index)
    if index and int(index) != by_path:
        raise ValueError(
            f"{where}: image {index} is not {path!r}, which is image {by_path} now; images were added or removed. "
            "Empty the column index to go by path"
        )
    return by_path


def _number(name: str | None, data: LabelledSet, where: str) -> int:
    """Return the class of that name; one that a spreadsheet would take for a formula may stand behind a quote."""
    text = name or ""
    for each in (text, text.removeprefix("'")):
        if each in data.class_names:
            return data.class_names.index(each)
    choose(f"class in {where}", text, data.class_names)
    raise AssertionError("the name was refused")
