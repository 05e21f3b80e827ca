"""Giving every method of a comparison its own value of a setting, chosen without clean labels.

All values are tried with the first seed. The one with the best result on the images set aside for selection, whose
labels are as noisy as the others, is then run with the other seeds. Test results decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deepbilevel_lab.records import Cell, CellRun, SweepRecord
from deepbilevel_lab.specs import SpecError

USUAL_SELECTION = 0.1
"""The share of the training images that is set aside, unless a run says otherwise."""


@dataclass(frozen=True)
class Grid:
    """The values of a setting that are tried; numbers in growing order, and whole ones where they were written so."""

    key: str
    values: tuple[float, ...]


def read_grid(text: str) -> Grid:
    """Return what ``--tune`` was given.

    >>> read_grid("optimizer.lr=0.1,0.01")
    Grid(key='optimizer.lr', values=(0.01, 0.1))
    """
    key, _, listed = text.partition("=")
    try:
        values = sorted({_read_number(value) for value in listed.split(",")})
    except ValueError:
        values = []
    if not key.strip() or len(values) < 2:
        raise SpecError(f"--tune needs a key and at least two numbers, as in optimizer.lr=0.01,0.03,0.1, got {text!r}")
    return Grid(key.strip(), tuple(values))


def _read_number(text: str) -> float:
    """Return an int for whole numbers: code of the user's own would stumble over a width of 8.0."""
    number = float(text)
    try:
        whole = int(text)
    except ValueError:
        return number
    return whole if whole == number else number


@dataclass(frozen=True)
class Tuned:
    """A method over its grid.

    Attributes:
        chosen: the cell with the value that selection prefers; None before all values have been tried.
        tried: the runs of the first seed that are done, by value.
    """

    row: str
    chosen: Cell | None
    tried: dict[float, CellRun]

    @property
    def range(self) -> tuple[float, float] | None:
        """The worst and the best test result over the grid, after the last epoch; None before all are there."""
        results = [run.figure("test") for run in self.tried.values()]
        if self.chosen is None or any(each is None for each in results):
            return None
        known = [each for each in results if each is not None]
        return min(known), max(known)


def tuned_methods(record: SweepRecord) -> list[Tuned]:
    """Return how the methods of a tuned comparison stand, in their order."""
    rows: dict[str, list[Cell]] = {}
    for cell in record.cells:
        rows.setdefault(cell.row, []).append(cell)
    return [_tune(row, cells, record.seeds[0]) for row, cells in rows.items()]


def _tune(row: str, cells: Sequence[Cell], first_seed: int) -> Tuned:
    tried: dict[float, CellRun] = {}
    scores: dict[float, float] = {}
    over = 0
    for cell in cells:
        assert cell.x is not None  # every cell of a grid has its value
        (run,) = (each for each in cell.runs if each.seed == first_seed)
        over += run.status in ("done", "failed")  # a value at which training diverges is not chosen
        if run.status == "done" and (score := run.figure("selection")) is not None:
            tried[cell.x], scores[cell.x] = run, score
    if over < len(cells) or not scores:
        return Tuned(row, None, tried)
    best = max(scores, key=scores.__getitem__)  # the smallest value of equals
    return Tuned(row, next(cell for cell in cells if cell.x == best), tried)
