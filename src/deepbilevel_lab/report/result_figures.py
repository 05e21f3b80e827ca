"""The results of a sweep as figures: accuracy against what was varied, or a dot plot of methods.

This module reads sweeps; it does not know runs' histories.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from deepbilevel_lab.drawing.figures import Curve, Dot, Figure, Panel, Scale, linear, over_values
from deepbilevel_lab.records import Axis, Cell, SweepRecord, show_number
from deepbilevel_lab.report.summaries import (
    MISSING,
    absence,
    count_statuses,
    distinct,
    is_not_run,
    measure,
    parts_of,
    published,
    standing,
)

PERCENT = (0.0, 100.0)
_APART = 0.07
_PAPER = ("paper", "published in the paper")
_LEGENDS = {"method": "Methods", "setting": "Settings", "method and setting": "Methods and settings"}
_TITLES = {"test": "Test, last epoch", "best": "Test, best epoch", "train": "Train, labels as given"}


def result_figures(sweep: SweepRecord, slug: str, metric: str) -> list[Figure]:
    """Return a figure per column or group of columns; ``metric`` is what its percentages are, accuracy for instance."""
    figures: list[Figure] = []
    if sweep.axis is None:
        series = distinct(cell.row for cell in sweep.cells)
        for number, (column, cells) in enumerate(parts_of(sweep), start=1):
            empty = _empty_figure(f"{slug}-results-{number}", _title(sweep, column), series, cells)
            figures.append(_dot_plot(empty, cells, metric) if _any_measured(cells) else empty)
        return figures
    drawn = line_plots(sweep)
    for number, (name, cells) in enumerate(drawn.plots, start=1):
        cells = sorted((cell for cell in cells if cell.x is not None), key=lambda cell: cell.x or 0.0)
        if all(map(is_not_run, cells)) and not all(map(is_not_run, sweep.cells)):
            continue  # nobody asked for it
        measured = {cell.x for cell in cells if _any_measured([cell])}
        if cells and len(measured) != 1:  # at one place nothing was varied: the table says it all
            empty = _empty_figure(f"{slug}-results-{number}", _title(sweep, name), drawn.lines, cells)
            figures.append(_against_axis(empty, sweep.axis, cells, metric, drawn.word) if measured else empty)
    return figures


def _title(sweep: SweepRecord, part: str) -> str:
    return f"{sweep.title}: {part}" if part else sweep.title


def _any_measured(cells: Sequence[Cell]) -> bool:
    return any(measure(cell, metric) is not None for cell in cells for metric in _TITLES)


def _empty_figure(slug: str, title: str, series: Sequence[str], cells: Sequence[Cell]) -> Figure:
    """Return what is said where nothing can be drawn; the paper's numbers alone are no result."""
    if all(absence(cell) == MISSING for cell in cells):
        why = "Nothing of it has been run yet"
    else:
        counted = count_statuses(run for cell in cells for run in cell.runs)
        why = f"None of its runs has a result: {', '.join(f'{count} {status}' for status, count in counted.items())}"
    table = "; the paper's numbers stand in the table" if _any_published(cells) else ""
    return Figure(slug, title, f"{why}{table}.", tuple(series), ())


def _against_axis(empty: Figure, axis: Axis, cells: Sequence[Cell], metric: str, word: str) -> Figure:
    series = empty.series
    absent = _absent_points(axis, cells)
    cells = [cell for cell in cells if not is_not_run(cell)]
    x = over_values([cell.x for cell in cells if cell.x is not None])
    y = linear([value for name in ("train", "test") for value in _extent(cells, name)], within=PERCENT)
    panels = tuple(
        Panel(
            key=name,
            title=f"{_TITLES[name]}: {metric} (%)",
            x_label=axis.label,
            x=x,
            y=y,
            dots=tuple(_dots(axis, cells, series, name)),
            curves=tuple(_lines(cells, series, name)),
        )
        for name in ("train", "test")
    )
    return replace(
        empty,
        about=f"Train and test {metric} against {axis.name}, a line per {word}; bars are the standard deviation over "
        f"seeds.{absent}",
        panels=panels,
        keys=(_PAPER,) if _any_published(cells) else (),
        shown=frozenset(mark.series for panel in panels for mark in panel.marks),
        series_word=_LEGENDS[word],
    )


def _absent_points(axis: Axis, cells: Sequence[Cell]) -> str:
    """Say which points are not there; a line that simply ends looks like a result."""
    places: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.x is not None and measure(cell, "test") is None:
            places.setdefault((cell.row, absence(cell)), []).append(show_number(cell.x))
    rows: dict[tuple[str, str], list[str]] = {}
    for (row, why), values in places.items():
        why = "not run" if why == MISSING else why
        rows.setdefault((", ".join(values), why), []).append(row)
    unit = f" {axis.unit}" if axis.unit else ""
    absent = [f"{_listed(names)} at {values}{unit} ({why})" for (values, why), names in rows.items()]
    return f" Not drawn: {'; '.join(absent)}." if absent else ""


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _lines(cells: Sequence[Cell], series: Sequence[str], metric: str) -> list[Curve]:
    lines: list[Curve] = []
    for number, name in enumerate(series):
        points = [
            (cell.x, found.mean)
            for cell in cells
            if cell.row == name and cell.x is not None and (found := measure(cell, metric)) is not None
        ]
        if len(points) > 1:
            lines.append(Curve(number, tuple(x for x, _ in points), tuple(y for _, y in points)))
    return lines


def _dots(axis: Axis, cells: Sequence[Cell], series: Sequence[str], metric: str) -> list[Dot]:
    dots: list[Dot] = []
    for cell in cells:
        number, x = series.index(cell.row), cell.x or 0.0
        where = f"{cell.row} · {axis.at(x)}"
        ours, theirs = measure(cell, metric), published(cell, metric)
        if ours is not None:
            tip = f"{where} · {_TITLES[metric]} {ours} % · seeds {standing(cell)}"
            dots.append(Dot(number, x, ours.mean, "full", tip, y_deviation=ours.deviation))
        if theirs is not None:
            dots.append(Dot(number, x, theirs, "paper", f"{where} · paper {theirs:.2f} %{_note(cell)}"))
    return dots


def _dot_plot(empty: Figure, cells: Sequence[Cell], metric: str) -> Figure:
    numbers = {name: number for number, name in enumerate(empty.series)}
    rows = tuple(numbers[name] for name in distinct(cell.row for cell in cells))
    test = _row_panel("test", f"Test {metric} (%)", ("test", "best"), cells, rows, numbers)
    train = _row_panel("train", f"Train {metric}, labels as given (%)", ("train",), cells, rows, numbers)
    scatter = _scatter(cells, numbers, metric)
    panels = tuple(panel for panel in (test, train) if panel.dots) + ((scatter,) if len(scatter.dots) > 1 else ())
    keys = [("full", _TITLES["test"])] + ([("hollow", _TITLES["best"])] if _extent(cells, "best") else [])
    return replace(
        empty,
        about=f"Test {metric} of the last and of the best epoch, and how much of the labels as given was learned, "
        "wrong ones included; bars are the standard deviation over seeds.",
        panels=panels,
        keys=(*keys, *((_PAPER,) if _any_published(cells) else ())),
        shown=frozenset(rows),
        lined=False,
    )


def _row_panel(
    key: str, title: str, names: Sequence[str], cells: Sequence[Cell], rows: Sequence[int], numbers: Mapping[str, int]
) -> Panel:
    dots: list[Dot] = []
    for cell in cells:
        number = numbers[cell.row]
        line = float(rows.index(number))
        # The best epoch above the line and the last below it: bars on one another cannot be told apart.
        barred = [found for name in names if (found := measure(cell, name)) is not None and found.deviation]
        apart = _APART if len(barred) > 1 else 0.0
        for name in names:
            ours, theirs = measure(cell, name), published(cell, name)
            if ours is not None:
                tip = f"{cell.row} · {_TITLES[name]} {ours} % · seeds {standing(cell)}"
                look, y = ("hollow", line - apart) if name == "best" else ("full", line + apart)
                dots.append(Dot(number, ours.mean, y, look, tip, x_deviation=ours.deviation))
            if theirs is not None:
                tip = f"{cell.row} · {_TITLES[name]} · paper {theirs:.2f} %{_note(cell)}"
                dots.append(Dot(number, theirs, line, "paper", tip))
    values = [value for name in names for value in _extent(cells, name)]
    labels = {numbers[cell.row]: cell.row for cell in cells}
    failed = [cell for cell in cells if cell.runs and measure(cell, names[0]) is None]
    labels |= {numbers[cell.row]: f"{cell.row}: {absence(cell)}" for cell in failed}
    return Panel(
        key,
        title,
        "",
        linear(values, within=PERCENT),
        None,
        dots=tuple(dots),
        rows=tuple(rows),
        row_labels=tuple(labels[number] for number in rows),
    )


def _scatter(cells: Sequence[Cell], numbers: Mapping[str, int], metric: str) -> Panel:
    dots: list[Dot] = []
    for cell in cells:
        train, test = measure(cell, "train"), measure(cell, "test")
        if train is not None and test is not None:
            tip = f"{cell.row} · train {train} % · test, last epoch {test} %"
            x_deviation, y_deviation = train.deviation, test.deviation
            dots.append(Dot(numbers[cell.row], train.mean, test.mean, "full", tip, x_deviation, y_deviation))
    x, y = (_around(dots, which) for which in ("x", "y"))
    label = f"train {metric}, labels as given (%)"
    return Panel("scatter", f"Test {metric} (%) against train", label, x, y, dots=tuple(dots))


def _around(dots: Sequence[Dot], which: str) -> Scale:
    values: list[float] = []
    for dot in dots:
        value, deviation = (dot.x, dot.x_deviation) if which == "x" else (dot.y, dot.y_deviation)
        values += [value - (deviation or 0.0), value + (deviation or 0.0)]
    return linear(values, within=PERCENT)


def _extent(cells: Sequence[Cell], metric: str) -> list[float]:
    """Return every value that has to find room on an axis."""
    values: list[float] = []
    for cell in cells:
        ours, theirs = measure(cell, metric), published(cell, metric)
        if ours is not None:
            values += [ours.mean - (ours.deviation or 0.0), ours.mean + (ours.deviation or 0.0)]
        if theirs is not None:
            values.append(theirs)
    return values


def _any_published(cells: Sequence[Cell]) -> bool:
    return any(published(cell, metric) is not None for cell in cells for metric in ("train", "test"))


def _note(cell: Cell) -> str:
    return f" · {cell.published.note}" if cell.published and cell.published.note else ""


@dataclass(frozen=True)
class LinePlots:
    """Plots, each with a title and the cells in it; the row of a cell is the name of its line.

    Attributes:
        word: what a line stands for.
    """

    plots: tuple[tuple[str, tuple[Cell, ...]], ...]
    word: str

    @property
    def lines(self) -> list[str]:
        """The names of all lines: one that is in several plots looks the same in all of them."""
        return distinct(cell.row for _, cells in self.plots for cell in cells)


def line_plots(sweep: SweepRecord) -> LinePlots:
    """Return a plot per column, or per group of columns that differ only after their last comma."""
    parts = parts_of(sweep)
    sizes = Counter(_before_last_comma(column) for column, _ in parts)
    grouped = {start for start, size in sizes.items() if start and size > 1}
    if not grouped:
        return LinePlots(tuple((column, tuple(cells)) for column, cells in parts), "method")
    one_method = len({cell.row for cell in sweep.cells}) == 1
    # By title and whether it names a group: "CifarNet" beside "CifarNet, clean" stays a plot of its own.
    plots: dict[tuple[str, bool], list[Cell]] = {}
    for column, cells in parts:
        start = _before_last_comma(column)
        if start in grouped:
            plots.setdefault((start, True), []).extend(_named(cells, column[len(start) + 2 :], one_method))
        else:
            plots.setdefault((column, False), []).extend(cells)
    word = "setting" if one_method else "method and setting"
    return LinePlots(tuple((title, tuple(cells)) for (title, _), cells in plots.items()), word)


def _before_last_comma(column: str) -> str:
    return column.rpartition(", ")[0]


def _named(cells: Sequence[Cell], end: str, one_method: bool) -> list[Cell]:
    """Name lines by what differs between them."""
    return [replace(cell, row=end if one_method else f"{cell.row}, {end}") for cell in cells]
