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
        data: a whole data set with one label per image.
        table: with the columns ``index`` or ``path``, ``decision`` and ``new_label``; ``given_label``, where it is
            there, must be the label that the image has.
        directory: of the data set, from which paths in the table are seen.
    """
    if not table.is_file():
        raise FileNotFoundError(f"labels {table} is not a file; save it on the page of an audit")
    columns, rows = read_table(table)
    if not set(columns).issuperset(_COLUMNS) or not set(columns) & {"index", "path"}:
        raise ValueError(
            f"{table} has the columns {', '.join(columns) or 'none'}; it needs decision, new_label and index or path, "
            "as the page of an audit saves them"
        )
    places = {normpath(name): place for place, name in enumerate(names_in(data, directory)) if name}
    labels, dropped, seen = data.labels.clone(), set[int](), dict[int, int]()
    for line, row in enumerate(rows, start=2):
        where = f"{table}, line {line}"
        place = _find(row, places, len(data), where)
        if place in seen:
            raise ValueError(
                f"{where}: {data.noun} {place} is there already, in line {seen[place]}; remove one of them"
            )
        seen[place] = line
        if row.get("given_label") and (given := _number(row["given_label"], data, where)) != data.labels[place]:
            raise ValueError(
                f"{where}: {data.noun} {place} has the label {data.class_names[int(data.labels[place])]!r}, and had "
                f"{data.class_names[given]!r} when it was audited; audit these labels, without noise, and decide again"
            )
        if choose(f"decision in {where}", row["decision"] or "", DECISIONS) == "drop":
            dropped.add(place)
        else:
            labels[place] = _number(row["new_label"], data, where)
    corrected = replace(data, labels=labels)
    if not dropped:
        return corrected
    return take(corrected, torch.tensor([place for place in range(len(data)) if place not in dropped]))


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
