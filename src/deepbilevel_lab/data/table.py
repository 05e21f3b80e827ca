"""Tables of numbers, categories and text: CSV or Parquet files, read into columns of text with a label per row.

This module knows files and which column is the target. What a column becomes for a network is in ``encoding.py``.
"""

import csv
import importlib
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from deepbilevel.checks import choose
from deepbilevel_lab.data.image_files import read_csv_text
from deepbilevel_lab.data.labelled_set import LabelledSet, natural
from deepbilevel_lab.specs import SpecError, validate

TABLE_SUFFIXES = (".csv", ".parquet")
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What counts as a missing value, in any case and with any space around it."""
_FEW_CLASSES = 20

Columns = Mapping[str, Sequence[str]]
"""Cells as text by the name of their column; an empty text is a missing value."""


@dataclass(frozen=True)
class ColumnsSpec:
    """What the columns of a table are for.

    Attributes:
        target: the column to predict.
        text: the column of text to predict it from, if it is text; no other column is looked at then.
        ignore: columns to leave out.
    """

    target: str
    text: str | None = None
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        validate(self)
        if self.target in (self.text, *self.ignore):
            raise SpecError(f"target {self.target!r} is what is predicted; it cannot be text or ignore as well")
        if self.text is not None and self.text in self.ignore:
            raise SpecError(f"text {self.text!r} cannot be ignored as well; drop one")


@dataclass(frozen=True, eq=False, kw_only=True)
class Table(LabelledSet):
    """Rows as they stand in the file.

    Attributes:
        columns: all columns but the target, those to be ignored too: people know rows by them.
        spec: what the columns are for.
    """

    noun: ClassVar[str] = "row"

    columns: Columns
    spec: ColumnsSpec

    def check_target(self) -> None:
        """Refuse a target that cannot be learned as classes."""
        target, counts = self.spec.target, self.class_counts()
        if _are_quantities(self.class_names, len(self)):
            raise ValueError(
                f"target {target!r} looks like a quantity: {len(self.class_names):,} different numbers in "
                f"{len(self):,} rows, {self.class_names[0]} for instance. Commands learn classes: put it into ranges, "
                "such as low and high, or train on it in a loop of your own (docs/loop.md); numbers that are classes "
                "can be written as class-17"
            )
        if len(counts) < 2:
            raise ValueError(f"target {target!r} is {self.class_names[0]!r} in every row; two classes are needed")
        alone = [name for name, count in zip(self.class_names, counts, strict=True) if count == 1]
        if alone:
            name, more = alone[0], f", and {len(alone) - 1} more classes have one" if len(alone) > 1 else ""
            row = int((self.labels == self.class_names.index(name)).nonzero()[0])
            raise ValueError(
                f"target {target!r} has the class {name!r} in one row only (row {row}{more}), which cannot be trained "
                "and tested on; is it a typing error? Correct or remove the row, or add others"
            )


def load_table(path: Path, spec: ColumnsSpec | None = None) -> Table:
    """Read a table with the labels in its target column."""
    if spec is None:
        raise ValueError(f"{path} is a table, and its target is not known; name the column to predict, as in --target")
    columns = read_columns(path)
    target = columns.pop(choose(f"target in {path.name}, which has the columns", spec.target, columns))
    for name in (*spec.ignore, *([] if spec.text is None else [spec.text])):
        choose(f"column of {path.name}", name, columns)
    names = [name.strip() for name in target]
    for row, name in enumerate(names):
        if name.lower() in MISSING:
            count = sum(each.lower() in MISSING for each in names)
            raise ValueError(
                f"{path}, row {row}: the target {spec.target!r} is missing ({name!r}), in {count:,} rows altogether; "
                "fill it in or remove the rows. A class that is called so needs another name"
            )
    classes = sorted(set(names), key=natural)
    number_of = {name: number for number, name in enumerate(classes)}
    return Table(
        labels=torch.tensor([number_of[name] for name in names], dtype=torch.int64),
        class_names=tuple(classes),
        columns=mark_missing(columns, but=spec.text),
        spec=spec,
    )


def read_columns(path: Path) -> dict[str, list[str]]:
    """Return the cells of a CSV or Parquet file by column; a column without name is called by its place."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file; it should be a table ({' or '.join(TABLE_SUFFIXES)})")
    names, rows = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    names = [name.strip() or f"column {number}" for number, name in enumerate(names, start=1)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} has several columns called {twice[0]!r}; give each its own name")
    columns: list[list[str]] = [[] for _ in names]
    shared: dict[str, str] = {}  # many cells hold the same text, and it is kept once
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(shared.setdefault(cell, cell))
    if not columns or not columns[0]:
        raise ValueError(f"{path} has no rows below its header; add some")
    return dict(zip(names, columns, strict=True))


def mark_missing(columns: Columns, *, but: str | None) -> Columns:
    """Return the columns with empty texts for missing values and no space around others; ``but`` stays as it is."""
    known: dict[str, str] = {}

    def mark(cell: str) -> str:
        if cell not in known:
            text = cell.strip()
            known[cell] = "" if text.lower() in MISSING else text
        return known[cell]

    return {name: list(cells) if name == but else list(map(mark, cells)) for name, cells in columns.items()}


def _read_csv(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    text = read_csv_text(path)
    header, _ = _split_header(path, text, ",")
    delimiter = next((mark for mark in ";\t" if len(header) == 1 and mark in header[0]), ",")
    return _split_header(path, text, delimiter)


def _split_header(path: Path, text: str, delimiter: str) -> tuple[list[str], Iterator[list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)

    def rows() -> Iterator[list[str]]:
        try:
            for row in reader:
                if not row:
                    continue  # an empty line
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} cells, but the header has {len(header)}; correct "
                        "it, or put texts that hold a comma into quotes"
                    )
                yield row
        except csv.Error as error:
            raise _no_table(path, reader.line_num, error) from error

    header: list[str] = []
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise _no_table(path, 1, error) from error
    return header, rows()


def _no_table(path: Path, line: int, error: csv.Error) -> ValueError:
    return ValueError(
        f"{path}, line {line}: {error}; cells may have {csv.field_size_limit():,} characters, and a quote that is "
        "opened has to be closed"
    )


def _read_parquet(path: Path) -> tuple[list[str], Iterator[list[str]]]:
    try:
        parquet, arrow = importlib.import_module("pyarrow.parquet"), importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError(f"reading {path} needs pyarrow; run: pip install 'deepbilevel[tables]'") from error
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise ValueError(f"{path} is damaged, or no Parquet file: {error}") from error
    columns: list[list[str]] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            columns.append([_as_text(value) for value in column.to_pylist()])
        except TypeError as error:
            raise ValueError(f"{path}: column {name!r} {error}; remove it, or make it text or numbers") from error
    return list(table.column_names), (list(row) for row in zip(*columns, strict=True))


def _as_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict, bytes)):
        raise TypeError(f"holds a {type(value).__name__} in a cell")  # pyright: ignore[reportUnknownArgumentType]
    return str(value)


def _are_quantities(names: Sequence[str], num_rows: int) -> bool:
    """Whether the values of a target look like amounts rather than classes."""
    numbers = [number for name in names if (number := to_number(name)) is not None]
    if len(numbers) < len(names) or len(names) <= _FEW_CLASSES:
        return False
    return any(number != round(number) for number in numbers) or len(names) > num_rows / 5


def to_number(cell: str) -> float | None:
    """Return a cell as a finite number, if it is one.

    >>> to_number("1e-3"), to_number("12 kg"), to_number("inf")
    (0.001, None, None)
    """
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None
