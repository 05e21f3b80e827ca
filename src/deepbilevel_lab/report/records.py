"""Records of sweeps, runs and benchmarks as values: what is read, what is refused, and why.

This module knows the format of records; it does not know what is shown of them. A record is a stranger's text: whatever
is in it arrives here as checked numbers and as strings that any file format can hold.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from deepbilevel_lab.report import fields
from deepbilevel_lab.report.cost_records import Costs, read_costs

FORMAT = 1
STATUSES = ("done", "failed", "missing", "running", "interrupted")
_KINDS = ("comparison", "experiment")
_LONGEST_REASON = 400  # a damaged record may repeat itself for megabytes
_SET_ASIDE = ".old-"  # `train --no-resume` moves a run here

_T = TypeVar("_T")


def show_number(value: float) -> str:
    """Write a number of an axis without needless digits.

    >>> show_number(50.0), show_number(0.001)
    ('50', '0.001')
    """
    return f"{value:.6g}"


@dataclass(frozen=True)
class Published:
    """Numbers the paper prints for a cell; None where it prints none."""

    train: float | None
    test: float | None
    gap: float | None
    note: str | None

    def value(self, metric: str) -> float | None:
        """Return the number for a metric by its name in our records."""
        return {"train": self.train, "test": self.test, "gap": self.gap}.get(metric)


@dataclass(frozen=True)
class CellRun:
    """One seed of a cell."""

    seed: int
    id: str | None
    status: str
    error: str | None
    figures: Mapping[str, float | None]


@dataclass(frozen=True)
class Cell:
    """A table entry or a point of a figure."""

    row: str
    column: str
    x: float | None
    published: Published | None
    runs: tuple[CellRun, ...]


@dataclass(frozen=True)
class Axis:
    """What a figure varies."""

    name: str
    unit: str

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def at(self, value: float) -> str:
        """Return a place on the axis in words.

        >>> Axis("label noise", "%").at(50.0)
        'label noise 50 %'
        """
        return f"{self.name} {show_number(value)}" + (f" {self.unit}" if self.unit else "")


@dataclass(frozen=True)
class Sweep:
    """A table or figure with all its runs."""

    name: str
    title: str
    kind: str
    about: str
    scale: str | None
    reduced: str | None
    axis: Axis | None
    updated: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class RunRecord:
    """What a run measured; the keys of ``history`` are those of :mod:`deepbilevel_lab.training.loop`.

    Runs with equal ``settings`` differ in nothing but the seed.
    """

    id: str
    name: str
    seed: int
    settings: str
    status: str
    error: str | None
    metric: str
    figures: Mapping[str, float | None]
    history: tuple[Mapping[str, float | None], ...]


@dataclass(frozen=True)
class Problem:
    """A file that was passed over."""

    path: str
    why: str


@dataclass(frozen=True)
class Records:
    """Everything under a folder."""

    sweeps: tuple[Sweep, ...]
    runs: Mapping[str, RunRecord]
    costs: tuple[Costs, ...]
    problems: tuple[Problem, ...]

    @property
    def loose(self) -> tuple[RunRecord, ...]:
        """The runs that belong to no sweep."""
        taken = {run.id for sweep in self.sweeps for cell in sweep.cells for run in cell.runs}
        return tuple(run for run in self.runs.values() if run.id not in taken)


def read_records(folder: Path) -> Records:
    """Read every record under ``folder``; what cannot be read is named in ``problems`` and stops nothing."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; name one that holds sweep-*.json, record.json or bench*.json files"
        )
    problems: list[Problem] = []
    sweeps: list[Sweep] = []
    runs: dict[str, RunRecord] = {}
    for path in _files(folder, "sweep-*.json"):
        sweep = _try_to_read(path, folder, problems, read_sweep)
        if sweep is not None:
            sweeps.append(sweep)
    for path in _files(folder, "record.json"):
        run = _try_to_read(path, folder, problems, _run)
        if run is None:
            continue
        if run.id in runs:
            problems.append(Problem(_shown(path, folder), f"another file records the run {run.id}; the first is shown"))
        else:
            runs[run.id] = run
    found = [_try_to_read(path, folder, problems, read_costs) for path in _files(folder, "bench*.json")]
    return Records(tuple(sweeps), runs, tuple(each for each in found if each is not None), tuple(problems))


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.rglob(pattern))
    return [path for path in found if not any(_SET_ASIDE in part for part in path.relative_to(folder).parts)]


def _shown(path: Path, folder: Path) -> str:
    return fields.clean(path.relative_to(folder).as_posix())


def _try_to_read(
    path: Path, folder: Path, problems: list[Problem], make: Callable[[Mapping[str, Any]], _T]
) -> _T | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError(f"it holds a {type(record).__name__} instead of an object")
        found = cast("dict[str, Any]", record)
        if found.get("format") != FORMAT:
            raise ValueError(f"format is {found.get('format')!r}; this version reads format {FORMAT}")
        return make(found)
    except (OSError, ValueError, RecursionError) as error:
        problems.append(Problem(_shown(path, folder), fields.clean(str(error))[:_LONGEST_REASON]))
        return None


def read_sweep(record: Mapping[str, Any]) -> Sweep:
    """Read the record of a sweep; what is wrong with it is a ValueError."""
    axis = fields.optional_object(record, "axis")
    return Sweep(
        name=fields.text(record, "name"),
        title=fields.text(record, "title"),
        kind=fields.one_of(record, "kind", _KINDS),
        about=fields.optional_text(record, "about") or "",
        scale=fields.optional_text(record, "scale"),
        reduced=fields.optional_text(record, "reduced"),
        axis=None if axis is None else Axis(fields.text(axis, "name"), fields.optional_text(axis, "unit") or ""),
        updated=fields.optional_text(record, "updated") or "",
        cells=tuple(_cell(cell) for cell in fields.objects(record, "cells")),
    )


def _cell(cell: Mapping[str, Any]) -> Cell:
    published = fields.optional_object(cell, "published")
    return Cell(
        row=fields.text(cell, "row"),
        column=fields.optional_text(cell, "column") or "",
        x=fields.number(cell, "x"),
        published=None
        if published is None
        else Published(
            fields.number(published, "train"),
            fields.number(published, "test"),
            fields.number(published, "gap"),
            fields.optional_text(published, "note"),
        ),
        runs=tuple(_cell_run(run) for run in fields.objects(cell, "runs")),
    )


def _cell_run(run: Mapping[str, Any]) -> CellRun:
    figures = fields.optional_object(run, "figures") or {}
    return CellRun(
        seed=fields.whole(run, "seed"),
        id=fields.optional_text(run, "id"),
        status=fields.one_of(run, "status", STATUSES),
        error=fields.optional_text(run, "error"),
        figures={fields.clean(name): fields.number(figures, name) for name in figures},
    )


def _run(record: Mapping[str, Any]) -> RunRecord:
    final, best = fields.optional_object(record, "final") or {}, fields.optional_object(record, "best") or {}
    figures = {name: fields.number(final, name) for name in ("test", "train", "train_clean", "gap")}
    figures["best"] = fields.number(best, "test")
    figures["seconds"] = fields.number(fields.optional_object(record, "seconds") or {}, "wall")
    spec = fields.optional_object(record, "spec") or {}
    return RunRecord(
        id=fields.text(record, "id"),
        name=fields.text(record, "name"),
        seed=fields.whole(spec, "seed"),
        settings=json.dumps({**spec, "seed": None}, sort_keys=True),
        status=fields.one_of(record, "status", STATUSES),
        error=fields.optional_text(record, "error"),
        metric=fields.optional_text(record, "metric") or "accuracy",
        figures=figures,
        history=tuple(
            {fields.clean(name): fields.number(row, name) for name in row} for row in fields.objects(record, "history")
        ),
    )
