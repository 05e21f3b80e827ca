"""From the columns of a table to numbers for a network: what is fitted on the training rows, kept and applied later.

An encoding is a spec: it is written as JSON, and a stranger's is read as strictly as any other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepbilevel_lab.data.labelled_set import LabelledSet
from deepbilevel_lab.data.table import Columns, Table, to_number
from deepbilevel_lab.data.text_features import TextColumn
from deepbilevel_lab.data.text_tokens import TokenColumn, Tokenizer
from deepbilevel_lab.specs import SpecError, validate

_MOST_CATEGORIES = 100
_FEW_VALUES = 20
_ROUNDING = 8 * np.finfo(np.float64).eps  # of values that are the same, relative to their size
_MOST_DEVIATIONS = 10.0  # farther values count as this far: one typing error must not outweigh all other columns

Entries = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Row, place and value of what is not zero."""


@dataclass(frozen=True)
class NumberColumn:
    """Numbers, with mean 0 and standard deviation 1 in the training rows; a missing one is the median.

    Attributes:
        has_missing: whether training rows had missing values; a second number then says that one is missing.
    """

    kind: ClassVar[str] = "number"

    name: str
    median: float
    mean: float
    std: float
    has_missing: bool

    def __post_init__(self) -> None:
        validate(self)
        if self.std <= 0:
            raise SpecError(f"std of column {self.name!r} must be positive, got {self.std}")

    @property
    def width(self) -> int:
        """How many numbers of the network's input it takes."""
        return 1 + self.has_missing

    def encode(self, cells: Sequence[str]) -> Entries:
        """Return what is not zero."""
        numbers = {cell: self._scaled(cell) for cell in set(cells)}
        values = np.array([numbers[cell] for cell in cells])
        rows = np.arange(len(cells), dtype=np.int64)
        if not self.has_missing:
            return rows, np.zeros_like(rows), values
        missing = rows[[not cell for cell in cells]]
        places = np.concatenate([np.zeros_like(rows), np.ones_like(missing)])
        return np.concatenate([rows, missing]), places, np.concatenate([values, np.ones(len(missing))])

    def problem(self, cell: str) -> str | None:
        """Return what is wrong with a cell, if anything is."""
        if not cell or to_number(cell) is not None:
            return None
        return f"column {self.name!r} must be a number, got {cell[:50]!r}"

    def _scaled(self, cell: str) -> float:
        number = to_number(cell)
        number = self.median if number is None else number
        return min(max((number - self.mean) / self.std, -_MOST_DEVIATIONS), _MOST_DEVIATIONS)


@dataclass(frozen=True)
class CategoryColumn:
    """One of several values: a number each, 1 where it is that value.

    A value that is not among them, because training rows had it once at the most, is all zeros.

    Attributes:
        has_missing: whether training rows had missing values, which are then a value of their own.
    """

    kind: ClassVar[str] = "category"

    name: str
    values: tuple[str, ...]
    has_missing: bool

    def __post_init__(self) -> None:
        validate(self)

    @property
    def width(self) -> int:
        """How many numbers of the network's input it takes."""
        return len(self.values) + self.has_missing

    def encode(self, cells: Sequence[str]) -> Entries:
        """Return what is not zero."""
        place_of = {value: place for place, value in enumerate([*self.values, *([""] if self.has_missing else [])])}
        places = np.array([place_of.get(cell, -1) for cell in cells], dtype=np.int64)
        rows = np.flatnonzero(places >= 0).astype(np.int64)
        return rows, places[rows], np.ones(len(rows))

    def problem(self, cell: str) -> str | None:
        """Return what is wrong with a cell: nothing can be."""
        return None


@dataclass(frozen=True)
class TableEncoding:
    """What the rows of a table become for a network.

    Attributes:
        target: the column that is predicted.
        columns: those that are used.
        left_out: why others are not, by their name.
    """

    target: str
    columns: tuple[NumberColumn | CategoryColumn | TextColumn | TokenColumn, ...]
    left_out: Mapping[str, Any]

    def __post_init__(self) -> None:
        validate(self)
        if not self.columns:
            raise SpecError("columns is empty; a network needs something to look at")
        if any(column.name == self.target for column in self.columns):
            raise SpecError(f"column {self.target!r} is both predicted and looked at; train the network again")

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(column.width for column in self.columns)

    @property
    def text(self) -> str | None:
        """The column of text, if it is text that is looked at."""
        return next((each.name for each in self.columns if isinstance(each, (TextColumn, TokenColumn))), None)

    def missing_columns(self, columns: Columns) -> list[str]:
        """Return which columns a table lacks."""
        return [column.name for column in self.columns if column.name not in columns]

    def problems(self, columns: Columns) -> dict[int, str]:
        """Return what is wrong, by the number of the row."""
        found: dict[int, str] = {}
        for column in self.columns:
            bad = {cell: problem for cell in set(columns[column.name]) if (problem := column.problem(cell))}
            if bad:
                found |= {row: bad[cell] for row, cell in enumerate(columns[column.name]) if cell in bad}
        return found

    def encode(self, table: Table, tokenizer: Tokenizer | None = None) -> "EncodedRows":
        """Return the rows as numbers; refuses a table without these columns, or with words in place of numbers.

        ``tokenizer`` is for text as tokens.
        """
        if lacking := self.missing_columns(table.columns):
            raise ValueError(
                f"the table lacks the column {lacking[0]!r}; it needs {_some([each.name for each in self.columns])}"
            )
        if problems := self.problems(table.columns):
            row = min(problems)
            raise ValueError(f"row {_number(table, row)}: {problems[row]}; correct it, or leave the row out")
        sparse = _find_sparse()
        rows, places, values, start = list[Any](), list[Any](), list[Any](), 0
        for column in self.columns:
            cells = table.columns[column.name]
            if isinstance(column, TokenColumn):
                if tokenizer is None:
                    raise ValueError(f"column {column.name!r} is text as tokens; its network must have a tokenizer")
                own_rows, own_places, own_values = column.encode(cells, tokenizer)
            else:
                own_rows, own_places, own_values = column.encode(cells)
            rows.append(own_rows)
            places.append(own_places + start)
            values.append(own_values.astype(np.float32))
            start += column.width
        content = (np.concatenate(values), (np.concatenate(rows), np.concatenate(places)))
        return EncodedRows(
            labels=table.labels,
            class_names=table.class_names,
            clean_labels=table.clean_labels,
            numbers=table.numbers,
            features=sparse.coo_matrix(content, shape=(len(table), self.width)).tocsr(),
            encoding=self,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class EncodedRows(LabelledSet):
    """Rows as a network sees them.

    Attributes:
        features: a sparse matrix ``[rows, encoding.width]`` of scipy, float32: of text most numbers are zero.
    """

    noun: ClassVar[str] = "row"

    features: Any
    encoding: TableEncoding

    def read(self, rows: Sequence[int]) -> Tensor:
        """Return these rows, ``[rows, encoding.width]``."""
        return torch.from_numpy(self.features[np.asarray(rows)].toarray())


def fit_encoding(table: Table, tokenizer: Tokenizer | None = None) -> TableEncoding:
    """Find out what the columns are, and how to scale and number their values, from training rows.

    With a ``tokenizer`` text becomes tokens.
    """
    spec = table.spec
    if spec.text is not None:
        cells = table.columns[spec.text]
        text = TextColumn.fit(spec.text, cells) if tokenizer is None else TokenColumn.fit(spec.text, cells, tokenizer)
        return TableEncoding(spec.target, (text,), {})
    columns: list[NumberColumn | CategoryColumn] = []
    left_out: dict[str, str] = {}
    for name, cells in table.columns.items():
        fitted = "ignored, as told" if name in spec.ignore else _fit(name, cells, table)
        if isinstance(fitted, str):
            left_out[name] = fitted
        else:
            columns.append(fitted)
    if not columns:
        reasons = "; ".join(f"{name}: {why}" for name, why in left_out.items()) or "there is none but the target"
        raise ValueError(f"no column is left to predict {spec.target!r} from ({reasons}); add columns")
    return TableEncoding(spec.target, tuple(columns), left_out)


def _fit(name: str, cells: Sequence[str], table: Table) -> NumberColumn | CategoryColumn | str:
    """Return how a column is encoded, or why it is left out."""
    counts = Counter(cells)
    num_missing = counts.pop("", 0)
    if not counts:
        return "empty"
    if len(counts) == 1 and not num_missing:
        return "constant"
    words = [cell for cell in counts if to_number(cell) is None]
    if not words:
        return _fit_numbers(name, cells, num_missing)
    if len(counts) - len(words) > _FEW_VALUES and sum(counts[word] for word in words) < 0.1 * counts.total():
        row = next(row for row, cell in enumerate(cells) if cell and to_number(cell) is None)
        raise ValueError(
            f"column {name!r} holds numbers, and words in {sum(counts[word] for word in words):,} rows: {cells[row]!r} "
            f"in row {_number(table, row)} for instance; correct them, leave them empty, or --ignore the column"
        )
    if len(counts) > max(_FEW_VALUES, len(cells) / 2):
        return f"looks like an id or free text: {len(counts):,} different texts in {len(cells):,} training rows"
    common = [value for value, count in counts.most_common(_MOST_CATEGORIES) if count > 1]
    return CategoryColumn(name, tuple(sorted(common)), num_missing > 0) if common else "no value occurs twice"


def _fit_numbers(name: str, cells: Sequence[str], num_missing: int) -> NumberColumn | str:
    numbers = np.array([float(cell) for cell in cells if cell])
    if _looks_like_id(name, numbers):
        return "looks like an id: all different whole numbers"
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(numbers.mean()), float(numbers.std())
    if not np.isfinite(std):
        raise ValueError(f"column {name!r} holds numbers as large as {np.abs(numbers).max():g}; scale or --ignore it")
    # Rounding gives a constant 0.1 a tiny deviation; divided by it, any other value would be as far as can be.
    varies = float(np.ptp(numbers)) > _ROUNDING * float(np.abs(numbers).max())
    return NumberColumn(name, float(np.median(numbers)), mean, std if varies and std > 0 else 1.0, num_missing > 0)


def _looks_like_id(name: str, numbers: npt.NDArray[np.float64]) -> bool:
    """Whether numbers count rows: whole, all different, and called so or without gaps in the file."""
    if len(numbers) <= _FEW_VALUES or (numbers != numbers.round()).any() or len(np.unique(numbers)) < len(numbers):
        return False
    called_so = name.lower() in ("id", "index", "row", "number", "no") or name.lower().endswith(("_id", " id", "-id"))
    # Of a counter, training rows have most numbers, and in their order: rows are taken in the order of the file.
    is_counter = bool((np.diff(numbers) > 0).all()) and float(np.ptp(numbers)) < 2 * len(numbers)
    return called_so or name.startswith("column ") or is_counter


def _number(table: Table, row: int) -> int:
    """Return where a row of a part stands in the whole table."""
    return row if table.numbers is None else int(table.numbers[row])


def _some(names: Sequence[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _find_sparse() -> Any:
    try:
        from scipy import sparse  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise ImportError(
            "tables need scipy, which comes with scikit-learn; run: pip install 'deepbilevel[cli]'"
        ) from error
    return sparse
