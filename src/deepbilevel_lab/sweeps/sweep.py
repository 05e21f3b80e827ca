"""A sweep as a value: named cells of a table or a figure, each with a run per seed; and the record of what came of it.

What a record holds is said in :mod:`deepbilevel_lab.records`. This module does not know why these runs belong
together, where they run, or what is printed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from deepbilevel_lab import records
from deepbilevel_lab.records import (
    FIGURES,
    Axis,
    CellRun,
    FormatError,
    MeanFigure,
    Published,
    RunRecord,
    SweepRecord,
    read_file,
    to_text,
)
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.specs import spec_id, to_plain
from deepbilevel_lab.sweeps.trials import Outcome, Trial, Watcher
from deepbilevel_lab.training.record import environment
from deepbilevel_lab.training.spec import RunSpec


@dataclass(frozen=True)
class Cell:
    """A place in a table or a figure.

    Attributes:
        row: usually the method.
        column: what it is tried on.
        specs: one run per seed.
        x: the varied quantity, in a figure.
        published: figures somebody else printed for it.
        settings: what makes this cell differ from the others, for people.
        before: runs that must be finished before those of this cell.
    """

    row: str
    column: str
    specs: Sequence[RunSpec]
    x: float | None = None
    published: Published | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    before: Sequence[RunSpec] = ()


@dataclass(frozen=True)
class Sweep:
    """Runs that belong together.

    Attributes:
        name: also that of its files.
        about: where it comes from, in a sentence or two.
        scale: how large, if there is a choice.
        reduced: how it is smaller than what was published.
        axis: the varied quantity; None is a table.
        base: what all runs have in common, if anything.
    """

    kind: Literal["comparison", "experiment"]
    name: str
    title: str
    about: str
    cells: Sequence[Cell]
    seeds: Sequence[int]
    scale: str | None = None
    reduced: str | None = None
    axis: Axis | None = None
    base: RunSpec | None = None

    @property
    def id(self) -> str:
        """The name of exactly these runs in these places."""
        return spec_id([[cell.row, cell.column, [spec.id for spec in cell.specs]] for cell in self.cells])

    def trials(
        self, wanted: Callable[[Cell], bool] = lambda cell: True, seeds: Sequence[int] | None = None
    ) -> list[Trial]:
        """Return the runs of the cells and seeds that are wanted, all by default.

        They come seed by seed: after the first there is something to look at.
        """
        cells = [cell for cell in self.cells if cell.specs and wanted(cell)]
        several = len({cell.column for cell in cells}) > 1
        trials: list[Trial] = []
        for number, seed in enumerate(self.seeds):
            for cell in cells if seeds is None or seed in seeds else ():
                place = f"{cell.row}, {cell.column}" if several else cell.row
                if cell.x is not None:
                    place += f", {cell.x:g}"
                tags = {"row": cell.row, "column": cell.column, "x": cell.x, "seed": seed}
                before = [spec for spec in cell.before if spec.seed == seed]
                trials += [Trial(f"{spec.name}, seed {seed}", spec, {"seed": seed}) for spec in before]
                trials.append(Trial(f"{place}, seed {seed}", cell.specs[number], tags))
        return trials

    def file(self, out: Path, ending: str) -> Path:
        """Return where the sweep is written, as ``json`` or ``png``."""
        return out / f"sweep-{self.name}.{ending}"


def make_sweep_record(sweep: Sweep, outcomes: Sequence[Outcome]) -> SweepRecord:
    """Return everything there is to say about a sweep, as it stands; runs without an outcome are missing."""
    by_id = {outcome.trial.id: outcome for outcome in outcomes}
    cells: list[records.Cell] = []
    for cell in sweep.cells:
        runs = tuple(_run(by_id.get(spec.id), spec) for spec in cell.specs)
        cells.append(
            records.Cell(
                row=cell.row,
                column=cell.column,
                x=cell.x,
                published=cell.published,
                runs=runs,
                settings=cell.settings,
                summary=_summarize([run.figures or {} for run in runs if run.status == "done"]),
            )
        )
    metrics = {outcome.record.metric for outcome in outcomes if outcome.record is not None}
    return SweepRecord(
        kind=sweep.kind,
        id=sweep.id,
        name=sweep.name,
        title=sweep.title,
        about=sweep.about,
        scale=sweep.scale,
        reduced=sweep.reduced,
        axis=sweep.axis,
        updated=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        base=None if sweep.base is None else to_plain(sweep.base),
        seeds=tuple(sweep.seeds),
        metric=min(metrics, default=None),
        cells=tuple(cells),
        environment=environment(),
    )


def _run(outcome: Outcome | None, spec: RunSpec) -> CellRun:
    record = None if outcome is None else outcome.record
    status = "missing" if outcome is None or outcome.status == "waiting" else outcome.status
    if outcome is not None and outcome.killed:
        status = "interrupted"  # only what failed by itself says something about its settings
    return CellRun(
        seed=spec.seed,
        id=spec.id,
        status=status,
        error=None if outcome is None else outcome.error,
        figures=None if record is None else record.figures,
        folder=f"{spec.name if record is None else record.name}-{spec.id}",  # named by who began it
        images_seen=None if record is None or record.steps is None else record.steps * spec.group.size,
    )


def _summarize(runs: Sequence[Mapping[str, float | None]]) -> dict[str, MeanFigure | None]:
    """Return mean and standard deviation of every figure over finished runs, None where there is none."""
    figures = {name: MeanFigure.of(run.get(name) for run in runs) for name in FIGURES}
    return {name: None if figure.mean is None else figure for name, figure in figures.items()}


class Recorder(Watcher):
    """Keeps the record of a sweep in its file up to date.

    Args:
        sweep: what is recorded.
        out: the folder of the record.
        find_record: returns the record of a run, for cells that are not run today; those of finished runs count.

    Attributes:
        record: as it was last written; all runs are missing before.
    """

    def __init__(
        self,
        sweep: Sweep,
        out: Path,
        *,
        find_record: Callable[[RunSpec], RunRecord | None] = lambda spec: None,
    ) -> None:
        self._sweep = sweep
        self._find_record = find_record
        self.path = sweep.file(out, "json")
        self.record = make_sweep_record(sweep, [])

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        """See :class:`Watcher`."""
        self.record = make_sweep_record(self._sweep, [*self._finished_otherwise(), *outcomes])
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, to_text(self.record))

    def _finished_otherwise(self) -> list[Outcome]:
        """Return what was finished before today, or since then by another process that runs another part."""
        return [
            Outcome(Trial(cell.row, spec), "done", record)
            for cell in self._sweep.cells
            for spec in cell.specs
            if (record := self._find_record(spec)) is not None and record.status == "done"
        ]


def recorded_seeds(file: Path) -> list[int]:
    """Return the seeds of the record that is there; none where there is none."""
    record = _read(file)
    return [] if record is None else list(record.seeds)


def refuse_to_lose(file: Path, sweep: Sweep) -> None:
    """Raise an error if the record that is there has finished runs of which the sweep knows nothing.

    Such runs had other settings: other threads or another device, or a version for which the sweep was another one.
    """
    planned = {spec.id for cell in sweep.cells for spec in cell.specs}
    record = _read(file)
    runs = [] if record is None else [run for cell in record.cells for run in cell.runs]
    strange = [run.folder or run.id for run in runs if run.status == "done" and run.id not in planned]
    if strange:
        raise ValueError(
            f"{file} has {len(strange)} finished run(s) with other settings, such as {strange[0]}, and would lose them;"
            " use --threads and --device as they were then, another folder as --out, or move that file away (runs stay)"
        )


def _read(file: Path) -> SweepRecord | None:
    try:
        return read_file(SweepRecord, file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, FormatError):
        return None  # none, or a damaged one: it is written anew from the records of runs
    except ValueError as error:
        raise ValueError(f"{file} is not what this version writes: {error}; move it away (runs stay)") from error
