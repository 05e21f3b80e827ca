"""Seeds of a cell as one figure, how its runs stand, and what sets it apart from the paper's number.

This module knows arithmetic; it does not know tables or drawings.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from deepbilevel_lab.records import STATUSES, Cell, CellRun, RunRecord, SweepRecord

METRICS = {
    "test": "Test, last epoch",
    "best": "Test, best epoch",
    "train": "Train, labels as given",
    "train_clean": "Train, clean labels",
    "gap": "Gap, train less test",
}
"""What is told of a cell, in percent or percentage points, in the order of a table's columns."""
MINUS = "\N{MINUS SIGN}"
"""For people; a hyphen is too short to be seen in a column of numbers."""


@dataclass(frozen=True)
class Spread:
    """A mean over seeds with its standard deviation, None for one seed.

    >>> print(Spread.of([47.0, 48.0, 49.0]))
    48.00 ± 1.00
    >>> print(Spread.of([47.0]))
    47.00
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the figure for at least one value."""
        return cls(mean(values), stdev(values) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.mean:.2f}".replace("-", MINUS) + ("" if self.deviation is None else f" ± {self.deviation:.2f}")


def measure(cell: Cell, metric: str) -> Spread | None:
    """Return a metric over the finished runs that have it."""
    found = [value for run in cell.runs if run.status == "done" and (value := run.figure(metric)) is not None]
    return Spread.of(found) if found else None


def published(cell: Cell, metric: str) -> float | None:
    """Return the paper's number, None where it prints none."""
    return cell.published.value(metric) if cell.published else None


def difference(cell: Cell, metric: str) -> float | None:
    """Return ours less the paper's."""
    ours, theirs = measure(cell, metric), published(cell, metric)
    return None if ours is None or theirs is None else ours.mean - theirs


def count_statuses(runs: Iterable[CellRun | RunRecord]) -> dict[str, int]:
    """Return how many runs stand how, in a fixed order, only what occurs."""
    counted = Counter(run.status for run in runs)
    return {status: counted[status] for status in STATUSES if counted[status]}


MISSING = "missing"
"""Nobody has run it."""


def absence(cell: Cell) -> str:
    """Say why a cell has no figure: ``missing``, ``failed`` and so on; never nothing.

    >>> absence(Cell("sgd", "", None, None, (CellRun(0, None, "failed", "no disk", {}),)))
    'failed'
    """
    statuses = list(count_statuses(cell.runs))
    if not statuses:
        return MISSING
    return "not measured" if statuses == ["done"] else ", ".join(s for s in statuses if s != "done")


def lacks_clean_labels(run: CellRun | RunRecord) -> bool:
    """Whether a finished run had no clean labels beside those given: it was evaluated on the given ones only.

    Where labels are clean there is nothing else to measure, and nothing is missing.

    >>> lacks_clean_labels(CellRun(0, None, "done", None, {"train": 90.0, "train_clean": None}))
    True
    """
    return run.figure("train") is not None and run.figure("train_clean") is None


def is_without(cell: Cell, metric: str) -> bool:
    """Whether a metric does not exist for a cell, to judge by its finished runs; so it is not called missing."""
    done = [run for run in cell.runs if run.status == "done"]
    return metric == "train_clean" and bool(done) and all(map(lacks_clean_labels, done))


def standing(cell: Cell) -> str:
    """Say how many seeds are behind a cell.

    >>> runs = CellRun(0, None, "done", None, {}), CellRun(1, None, "missing", None, {})
    >>> standing(Cell("sgd", "", None, None, runs))
    '1 of 2; 1 missing'
    """
    counted = count_statuses(cell.runs)
    others = "".join(f"; {count} {status}" for status, count in counted.items() if status != "done")
    return f"{counted.get('done', 0)} of {len(cell.runs)}{others}"


def distinct(values: Iterable[str]) -> list[str]:
    """Return the values without repetition, in their order."""
    return list(dict.fromkeys(values))


def shown_metrics(sweep: SweepRecord) -> list[str]:
    """Return the metrics of which the sweep has any number at all, ours or the paper's; the test result always.

    Between labels that are wrong on purpose and right ones a gap means nothing, unless the paper prints one.
    """
    cells = [cell for cell in sweep.cells if not is_not_run(cell)] or sweep.cells
    trained = [cell for cell in cells if measure(cell, "train") is not None]
    is_noisy = bool(trained) and all(measure(cell, "train_clean") is not None for cell in trained)

    def is_shown(metric: str) -> bool:
        if metric == "test" or any(published(cell, metric) is not None for cell in cells):
            return True
        return not (metric == "gap" and is_noisy) and any(measure(cell, metric) is not None for cell in cells)

    return [metric for metric in METRICS if is_shown(metric)]


def parts_of(sweep: SweepRecord) -> list[tuple[str, list[Cell]]]:
    """Split a sweep by its columns; one part if a figure has a column of its own for every point of its axis."""
    columns = {name: [cell for cell in sweep.cells if cell.column == name] for name in columns_of(sweep)}
    if sweep.axis is not None and all(len({cell.x for cell in cells}) < 2 for cells in columns.values()):
        return [("", list(sweep.cells))]
    return list(columns.items())


def parts_run(sweep: SweepRecord) -> list[tuple[str, list[Cell]]]:
    """Return the parts with their cells of which a run was begun, and those beside them that only the paper has."""
    parts = [(title, [cell for cell in cells if _belongs_to(cell, cells)]) for title, cells in parts_of(sweep)]
    return [(title, cells) for title, cells in parts if cells]


def parts_not_run(sweep: SweepRecord) -> list[tuple[str, list[Cell]]]:
    """Return the parts with their other cells: nobody has asked for them yet."""
    parts = [(title, [cell for cell in cells if not _belongs_to(cell, cells)]) for title, cells in parts_of(sweep)]
    return [(title, cells) for title, cells in parts if cells]


def _belongs_to(cell: Cell, part: Sequence[Cell]) -> bool:
    return not all(map(is_not_run, part)) if not cell.runs else not is_not_run(cell)


def is_not_run(cell: Cell) -> bool:
    """Whether no run of a cell was begun."""
    return all(run.status == MISSING for run in cell.runs)


def is_synthetic(sweep: SweepRecord) -> bool:
    """Whether the images were made up, so that no number says anything about a method."""
    said = sweep.reduced or ""  # the only place where a record tells it, in other words before 0.2
    return "synthetic" in said or "made images" in said


def columns_of(sweep: SweepRecord) -> list[str]:
    """Return the columns in their order."""
    return distinct(cell.column for cell in sweep.cells)
