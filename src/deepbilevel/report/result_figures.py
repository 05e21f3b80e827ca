"""The results of a sweep as figures: accuracy against what was varied, or a dot plot of methods.

This module reads sweeps; it does not know runs' histories.
"""

from collections.abc import Mapping, Sequence

from deepbilevel.report.figures import Curve, Dot, Figure, Panel
from deepbilevel.report.records import Axis, Cell, Sweep
from deepbilevel.report.scales import Scale, linear, over_values
from deepbilevel.report.summaries import MISSING, absence, distinct, measure, parts_of, published, standing

PERCENT = (0.0, 100.0)
_PAPER = ("paper", "published in the paper")
_TITLES = {"test": "Test, last epoch", "best": "Test, best epoch", "train": "Train, labels as given"}


def result_figures(sweep: Sweep, slug: str, metric: str) -> list[Figure]:
    """Return a figure per column of the sweep; ``metric`` is what its percentages are, accuracy for instance."""
    series = distinct(cell.row for cell in sweep.cells)
    make = _against_axis if sweep.axis else _dot_plot
    figures: list[Figure] = []
    for number, (column, cells) in enumerate(parts_of(sweep), start=1):
        figure = make(sweep, cells, series, f"{slug}-results-{number}", column, metric)
        if figure is not None:
            figures.append(figure)
    return figures


def _against_axis(
    sweep: Sweep, cells: Sequence[Cell], series: Sequence[str], slug: str, column: str, metric: str
) -> Figure | None:
    assert sweep.axis is not None
    cells = sorted((cell for cell in cells if cell.x is not None), key=lambda cell: cell.x or 0.0)
    if not cells:
        return None
    x = over_values([cell.x for cell in cells if cell.x is not None])
    y = linear([value for name in ("train", "test") for value in _extent(cells, name)], within=PERCENT)
    panels = tuple(
        Panel(
            key=name,
            title=f"{_TITLES[name]}: {metric} (%)",
            x_label=sweep.axis.label + ("" if x.places is None else ", not to scale"),
            x=x,
            y=y,
            dots=tuple(_dots(sweep, cells, series, name)),
            curves=tuple(_lines(cells, series, name)),
        )
        for name in ("train", "test")
    )
    return Figure(
        slug,
        f"{sweep.title}: {column}" if column else sweep.title,
        f"Train and test {metric} against {sweep.axis.name}, a line per method; bars are the standard deviation over "
        f"seeds.{_absent_points(sweep.axis, cells)}",
        tuple(series),
        panels,
        keys=(_PAPER,) if _any_published(cells) else (),
        shown=frozenset(range(len(series))),
    )


def _absent_points(axis: Axis, cells: Sequence[Cell]) -> str:
    """Say which points are not there; a line that simply ends looks like a result."""
    absent = [
        f"{cell.row} at {axis.at(cell.x)} ({absence(cell)})"
        for cell in cells
        if cell.x is not None and measure(cell, "test") is None
    ]
    if len(absent) == len(cells) and all(absence(cell) == MISSING for cell in cells):
        return " Nothing of it has been run yet."
    return f" Not drawn: {'; '.join(absent)}." if absent else ""


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


def _dots(sweep: Sweep, cells: Sequence[Cell], series: Sequence[str], metric: str) -> list[Dot]:
    dots: list[Dot] = []
    for cell in cells:
        number, x = series.index(cell.row), cell.x or 0.0
        where = f"{cell.row} · {sweep.axis.at(x) if sweep.axis else ''}"
        ours, theirs = measure(cell, metric), published(cell, metric)
        if ours is not None:
            tip = f"{where} · {_TITLES[metric]} {ours} % · seeds {standing(cell)}"
            dots.append(Dot(number, x, ours.mean, "full", tip, y_deviation=ours.deviation))
        if theirs is not None:
            dots.append(Dot(number, x, theirs, "paper", f"{where} · paper {theirs:.2f} %{_note(cell)}"))
    return dots


def _dot_plot(
    sweep: Sweep, cells: Sequence[Cell], series: Sequence[str], slug: str, column: str, metric: str
) -> Figure | None:
    numbers = {name: number for number, name in enumerate(series)}
    rows = tuple(numbers[name] for name in distinct(cell.row for cell in cells))
    test = _row_panel("test", f"Test {metric} (%)", ("test", "best"), cells, rows, numbers)
    train = _row_panel("train", f"Train {metric}, labels as given (%)", ("train",), cells, rows, numbers)
    scatter = _scatter(cells, numbers, metric)
    panels = tuple(panel for panel in (test, train, scatter) if panel.dots)
    if not panels:
        return None
    keys = [("full", _TITLES["test"])] + ([("hollow", _TITLES["best"])] if _extent(cells, "best") else [])
    return Figure(
        slug,
        f"{sweep.title}: {column}" if column else sweep.title,
        f"Test {metric} of the last and of the best epoch, and how much of the labels as given was learned, wrong ones "
        "included; bars are the standard deviation over seeds.",
        tuple(series),
        panels,
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
        for name in names:
            ours, theirs = measure(cell, name), published(cell, name)
            if ours is not None:
                tip = f"{cell.row} · {_TITLES[name]} {ours} % · seeds {standing(cell)}"
                look = "hollow" if name == "best" else "full"
                dots.append(Dot(number, ours.mean, line, look, tip, x_deviation=ours.deviation))
            if theirs is not None:
                tip = f"{cell.row} · {_TITLES[name]} · paper {theirs:.2f} %{_note(cell)}"
                dots.append(Dot(number, theirs, line, "paper", tip))
    values = [value for name in names for value in _extent(cells, name)]
    labels = {numbers[cell.row]: cell.row for cell in cells}
    labels |= {numbers[cell.row]: f"{cell.row}: {absence(cell)}" for cell in cells if measure(cell, names[0]) is None}
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
