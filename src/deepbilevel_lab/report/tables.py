"""Sweeps as tables: for people, with the paper's numbers beside ours, and as CSV for programs.

This module decides what stands in which column; it does not know HTML.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepbilevel_lab.csv_text import to_csv, without_formula
from deepbilevel_lab.records import Axis, Cell, CellRun, RunRecord, SweepRecord, show_number
from deepbilevel_lab.report.summaries import (
    METRICS,
    MINUS,
    MISSING,
    absence,
    difference,
    is_without,
    lacks_clean_labels,
    measure,
    parts_not_run,
    parts_run,
    published,
    shown_metrics,
    standing,
)

NOT_PRINTED = "\N{EN DASH}"
"""Stands where the paper prints no number, where there is nothing to subtract, and where nothing could be measured."""


@dataclass(frozen=True)
class Entry:
    """What stands in a field: a text, the number of a footnote, and a look: ``absent``, ``doubtful`` or none."""

    text: str
    note: int | None = None
    look: str = ""


@dataclass(frozen=True)
class Column:
    """A column under the heading it shares with its neighbours.

    ``kind`` is what stands in it: ``number``, ``text``, or numbers with ``words`` between them, which may be broken.
    """

    group: str
    name: str
    kind: str = "number"


@dataclass(frozen=True)
class Row:
    """A line of a table: what it is about, and its fields."""

    head: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """A table in parts, each with a heading of its own where there are several."""

    caption: str
    corner: str
    columns: tuple[Column, ...]
    parts: tuple[tuple[str, tuple[Row, ...]], ...]
    notes: tuple[str, ...] = ()

    def begins(self, place: int) -> bool:
        """Whether a column begins a group, or is in none: a line is drawn before it."""
        group = self.columns[place].group
        return not group or place == 0 or group != self.columns[place - 1].group


def results_table(sweep: SweepRecord) -> Table:
    """Return the paper's numbers and ours side by side, a line per cell of which anything was run.

    A part is a column of the paper's table.
    """
    metrics = shown_metrics(sweep)
    ran = parts_run(sweep)
    printed = [metric for metric in metrics if any(published(cell, metric) is not None for _, c in ran for cell in c)]
    columns = [_axis_column(sweep.axis)] if sweep.axis else []
    for metric in metrics:
        if metric in printed:
            # On fewer images or epochs a difference says nothing about the method.
            names = ("paper", "ours") if sweep.reduced else ("paper", "ours", "difference")
            columns += [Column(METRICS[metric], name) for name in names]
        else:
            columns.append(Column("", f"{METRICS[metric]}, ours" if printed else METRICS[metric]))
    notes: list[str] = []
    parts = tuple((title, tuple(_row(cell, sweep, metrics, printed, notes) for cell in cells)) for title, cells in ran)
    caption = "Percent, mean ± standard deviation over the finished seeds."
    return Table(caption, "method", (*columns, Column("", "seeds finished", "words")), parts, tuple(notes))


def planned_table(sweep: SweepRecord) -> Table:
    """Return the cells of which nothing was run, with what the paper prints for them."""
    parts = parts_not_run(sweep)
    printed = [m for m in METRICS if any(published(cell, m) is not None for _, cells in parts for cell in cells)]
    columns = [_axis_column(sweep.axis)] if sweep.axis else []
    columns += [Column("", f"{METRICS[metric]}, paper") for metric in printed]
    notes: list[str] = []
    rows = tuple((title, tuple(_planned_row(cell, sweep, printed, notes) for cell in cells)) for title, cells in parts)
    caption = "Percent, as the paper prints it." if printed else "Planned."
    return Table(caption, "method", (*columns, Column("", "seeds planned")), rows, tuple(notes))


def _axis_column(axis: Axis) -> Column:
    return Column("", axis.label, "words" if len(axis.label) > 20 else "number")  # it takes many lines if it is narrow


def _planned_row(cell: Cell, sweep: SweepRecord, printed: Sequence[str], notes: list[str]) -> Row:
    entries = [Entry(_number_or_dash(cell.x))] if sweep.axis else []
    number = _note_number(cell, notes)
    entries += [_theirs(cell, metric, number) for metric in printed]
    return Row(cell.row, (*entries, Entry(str(len(cell.runs) or NOT_PRINTED))))


def _row(cell: Cell, sweep: SweepRecord, metrics: Sequence[str], printed: Sequence[str], notes: list[str]) -> Row:
    entries: list[Entry] = []
    if sweep.axis:
        entries.append(Entry(_number_or_dash(cell.x)))
    number = _note_number(cell, notes)
    for metric in metrics:
        if metric in printed:
            entries.append(_theirs(cell, metric, number))
        entries.append(_ours(cell, metric))
        if metric in printed and not sweep.reduced:
            apart = difference(cell, metric)
            entries.append(Entry(NOT_PRINTED if apart is None else _signed(apart)))
    return Row(cell.row, (*entries, Entry(standing(cell) if cell.runs else NOT_PRINTED)))


def _theirs(cell: Cell, metric: str, note: int | None) -> Entry:
    found = published(cell, metric)
    return Entry(NOT_PRINTED) if found is None else Entry(f"{found:.2f}", note, "" if note is None else "doubtful")


def _ours(cell: Cell, metric: str) -> Entry:
    found = measure(cell, metric)
    if found is not None:
        return Entry(str(found))
    nothing_to_measure = not cell.runs or is_without(cell, metric)
    return Entry(NOT_PRINTED) if nothing_to_measure else Entry(absence(cell), look="absent")


def _note_number(cell: Cell, notes: list[str]) -> int | None:
    note = cell.published.note if cell.published else None
    if note is None:
        return None
    if note not in notes:
        notes.append(note)
    return notes.index(note) + 1


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)


def runs_table(sweep: SweepRecord) -> Table:
    """Return every run of a sweep by its seed, with what went wrong."""
    head = ("column", *((sweep.axis.label,) if sweep.axis else ()), "seed", "run", "status")
    metrics = shown_metrics(sweep)
    rows = [
        Row(
            cell.row,
            (
                Entry(cell.column or NOT_PRINTED),
                *((Entry(_number_or_dash(cell.x)),) if sweep.axis else ()),
                Entry(str(run.seed)),
                *_run_entries(run.id, run.status, run.error),
                *(_figure(run, metric) for metric in metrics),
            ),
        )
        for cell in sweep.cells
        for run in cell.runs
    ]
    return _table_of_runs("method", (*head, *(METRICS[metric] for metric in metrics)), rows)


def loose_table(runs: Iterable[tuple[str, RunRecord]]) -> Table:
    """Return the runs that belong to no sweep, each by what it is called."""
    runs = list(runs)
    metrics = [
        metric
        for metric in METRICS
        # Between labels that are wrong on purpose and right ones a gap means nothing.
        if any(run.figure(metric) is not None and (metric != "gap" or lacks_clean_labels(run)) for _, run in runs)
    ]
    rows = [
        Row(
            name,
            (
                *(_figure(run, metric) for metric in metrics),
                Entry(str(run.seed)),
                *_run_entries(run.id, run.status, run.error),
            ),
        )
        for name, run in runs
    ]
    return _table_of_runs("name", (*(METRICS[metric] for metric in metrics), "seed", "run", "status"), rows)


def _table_of_runs(corner: str, names: Iterable[str], rows: Iterable[Row]) -> Table:
    texts = ("column", "run", "status")
    columns = tuple(Column("", name, "text" if name in texts else "number") for name in names)
    return Table("Every run; percent.", corner, columns, (("", tuple(rows)),))


def _number_or_dash(value: float | None) -> str:
    return NOT_PRINTED if value is None else show_number(value)


def _run_entries(name: str | None, status: str, error: str | None) -> tuple[Entry, Entry]:
    told = f"{status}: {error}" if error else status
    return Entry(name or NOT_PRINTED), Entry(told, look=_look(status))


def _look(status: str) -> str:
    return "" if status in ("done", "running", MISSING) else "absent"  # what nobody has run is no fault


def _figure(run: CellRun | RunRecord, metric: str) -> Entry:
    value = run.figure(metric)
    if value is not None:
        return Entry(f"{value:.2f}")
    if metric == "train_clean" and lacks_clean_labels(run):
        return Entry(NOT_PRINTED)
    if run.status == MISSING:
        return Entry(NOT_PRINTED)
    return Entry("not measured" if run.status == "done" else run.status, look="absent")


def results_csv(sweep: SweepRecord) -> str:
    """Return the results as CSV: a line per cell, a column per number, empty only where there is no number."""
    metrics = shown_metrics(sweep)
    head = ["column", "row", sweep.axis.name if sweep.axis else "x", "seeds", "finished", "standing"]
    for metric in metrics:
        head += [f"{metric}_{part}" for part in ("paper", "ours", "deviation", "difference")]
    lines: list[list[str]] = []
    for cell in sweep.cells:
        done = sum(run.status == "done" for run in cell.runs)
        line = [cell.column, cell.row, _plain(cell.x), str(len(cell.runs)), str(done), standing(cell)]
        for metric in metrics:
            ours = measure(cell, metric)
            line += [
                _plain(published(cell, metric)),
                "" if is_without(cell, metric) else absence(cell) if ours is None else _plain(ours.mean),
                _plain(ours.deviation if ours else None),
                _plain(None if sweep.reduced else difference(cell, metric)),
            ]
        lines.append([*line, (cell.published.note if cell.published else None) or ""])
    return _csv([*head, "note"], lines)


def table_csv(table: Table) -> str:
    """Return a table as CSV, as it is shown; where it has several parts, the first column says which."""
    head = [table.corner, *(f"{column.group} {column.name}".strip() for column in table.columns)]
    lines = [[row.head, *(entry.text for entry in row.entries)] for _, rows in table.parts for row in rows]
    if len(table.parts) > 1:
        head = ["part", *head]
        titles = [title for title, rows in table.parts for _ in rows]
        lines = [[title, *line] for title, line in zip(titles, lines, strict=True)]
    return _csv(head, lines)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _csv(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return to_csv([without_formula(field) for field in line] for line in (head, *lines))
