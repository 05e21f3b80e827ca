"""What happened during training, as figures: curves over epochs, and how mini-batches were weighted.

This module reads the histories of runs; it does not know the paper.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from deepbilevel_lab.drawing.figures import Band, Curve, Figure, Panel, along, linear
from deepbilevel_lab.records import Axis, RunRecord, SweepRecord
from deepbilevel_lab.report.summaries import distinct

MOST_SHOWN = 7
"""More series than these are drawn when the reader asks for them; each has a colour of its own up to here."""
CURVES = {
    "test": "Test",
    "train": "Train, labels as given",
    "train_clean": "Train, clean labels",
    "negative_share": "Negative weights",
    "shared": "Shared part of the gradient",
    "loss": "Training loss",
}
"""The panels of a figure, by the keys of a history."""
WEIGHTS = "weights"
_SHARES = {"negative_share": "% of mini-batches", "shared": "%"}
_QUANTILES = tuple(f"weight_p{percent}" for percent in (5, 25, 50, 75, 95))


@dataclass(frozen=True)
class Setting:
    """Runs that are looked at together, each with the number of its series."""

    title: str
    runs: tuple[tuple[int, RunRecord], ...]


def settings_of(sweep: SweepRecord, runs: Mapping[str, RunRecord]) -> list[Setting]:
    """Return the runs of a sweep whose records are there, a setting per column and point of the axis."""
    series = distinct(cell.row for cell in sweep.cells)
    found: dict[str, list[tuple[int, RunRecord]]] = {}
    for cell in sweep.cells:
        where = _place(sweep.axis, cell.x) if sweep.axis and cell.x is not None else ""
        title = ", ".join(part for part in (cell.column, where) if part)
        for run in cell.runs:
            record = runs.get(run.id or "")
            if record is not None and record.history:
                found.setdefault(title, []).append((series.index(cell.row), record))
    return [Setting(title, tuple(members)) for title, members in found.items()]


def _place(axis: Axis, x: float) -> str:
    """Return a place on an axis in few words: a list of choices has one line on a phone.

    >>> _place(Axis("k, the number of mini-batches"), 8), _place(Axis("images in each of 8 mini-batches"), 16)
    ('k 8', 'at 16')
    """
    name = re.split("[,;]", axis.name)[0]
    return Axis(name, axis.unit).at(x) if len(name) < 30 else Axis("at", axis.unit).at(x)


def run_figure(setting: Setting, series: Sequence[str], title: str, slug: str, series_word: str = "Methods") -> Figure:
    """Return the figure of a setting: a panel per metric that was measured, and one per method that weighs."""
    panels = [panel for key in CURVES if (panel := _curve_panel(key, setting, series)) is not None]
    present = sorted({number for number, _ in setting.runs})
    panels += [panel for number in present if (panel := _weight_panel(number, setting, series)) is not None]
    about = "Everything over epochs, a line per run."
    if any(panel.key == WEIGHTS for panel in panels):
        about += (
            " Weights of mini-batches: the middle line is the median, the dark band holds half of them, "
            "the light one nine tenths."
        )
    return Figure(
        slug,
        f"{title}: {setting.title}" if setting.title else title,
        about,
        tuple(series),
        tuple(panels),
        shown=frozenset(_worth_seeing(setting)),
        seeds=tuple(sorted({run.seed for _, run in setting.runs})),
        series_word=series_word,
    )


def test_figure(setting: Setting, series: Sequence[str], title: str, slug: str) -> Figure:
    """Return test figures over epochs: a line per series, the mean over its runs, in a band from lowest to highest."""
    curves: list[Curve] = []
    bands: list[Band] = []
    for number, name in enumerate(series):
        by_epoch: dict[float, list[float]] = {}
        for row in (row for owner, run in setting.runs if owner == number for row in run.history):
            if row.test is not None:
                by_epoch.setdefault(float(row.epoch), []).append(row.test)
        if by_epoch:
            xs, values = tuple(by_epoch), by_epoch.values()
            curves.append(Curve(number, xs, tuple(map(mean, values)), label=name))
            bands.append(Band(number, xs, tuple(map(min, values)), tuple(map(max, values)), None, "range"))
    x = along([x for curve in curves for x in curve.xs])
    # All rise from chance at first. That may leave the panel below, or it would take most of the height.
    risen = x.low + (x.high - x.low) / 3
    y = linear(
        [
            value
            for band in bands
            for epoch, *ends in zip(band.xs, band.lows, band.highs, strict=True)
            if epoch >= min(risen, band.xs[-1])
            for value in ends
        ],
        within=(0.0, 100.0),
    )
    panel = Panel(
        "test",
        f"Test {setting.runs[0][1].metric} (%)",
        "epoch",
        x,
        y,
        curves=tuple(_cut_curve(curve, y.low) for curve in curves),
        bands=tuple(_cut_band(band, y.low) for band in bands),
    )
    about = "Test figures over epochs, a line per method; the band is the range over seeds."
    return Figure(slug, title, about, tuple(series), (panel,), shown=frozenset(curve.series for curve in curves))


def _cut_curve(curve: Curve, low: float) -> Curve:
    xs, (ys,) = _cut(curve.xs, curve.ys, low=low)
    return replace(curve, xs=xs, ys=ys)


def _cut_band(band: Band, low: float) -> Band:
    xs, (highs, lows) = _cut(band.xs, band.highs, band.lows, low=low)
    return replace(band, xs=xs, lows=tuple(max(value, low) for value in lows), highs=highs)


def _cut(
    xs: Sequence[float], ys: Sequence[float], *others: Sequence[float], low: float
) -> tuple[tuple[float, ...], list[tuple[float, ...]]]:
    """Leave out everything up to where ``ys`` rises above ``low`` for good; it then begins at ``low``."""
    below = max((place for place, y in enumerate(ys) if y < low), default=None)
    if below is None:
        return tuple(xs), [tuple(line) for line in (ys, *others)]
    share = (low - ys[below]) / (ys[below + 1] - ys[below])

    def rest(line: Sequence[float]) -> tuple[float, ...]:
        return (line[below] + share * (line[below + 1] - line[below]), *line[below + 1 :])

    return rest(xs), [rest(line) for line in (ys, *others)]


def _worth_seeing(setting: Setting) -> list[int]:
    """Return the series to begin with: the first, which is what others are compared with, and the best."""
    last = {number: run.figures.get("test") or 0.0 for number, run in reversed(setting.runs)}
    first, *others = sorted(last)
    return [first, *sorted(others, key=lambda number: -last[number])[: MOST_SHOWN - 1]]


def _curve_panel(key: str, setting: Setting, series: Sequence[str]) -> Panel | None:
    factor = 100.0 if key in _SHARES else 1.0
    curves: list[Curve] = []
    for number, run in setting.runs:
        if key == "negative_share" and not _weighs(run):
            continue
        points = [(float(row.epoch), value * factor) for row in run.history if (value := row.figure(key)) is not None]
        if points:
            xs, ys = tuple(x for x, _ in points), tuple(y for _, y in points)
            curves.append(Curve(number, xs, ys, run.seed, f"{series[number]}, seed {run.seed}"))
    if all(len(curve.xs) < 2 for curve in curves):
        return None  # evaluated once: there is nothing over epochs
    percent = key != "loss"
    metric = setting.runs[0][1].metric
    unit = _SHARES.get(key, f"{metric}, %")
    return Panel(
        key,
        CURVES[key] if key == "loss" else f"{CURVES[key]} ({unit})",
        "epoch",
        along([x for curve in curves for x in curve.xs]),
        linear([y for curve in curves for y in curve.ys], within=(0.0, 100.0) if percent else None),
        curves=tuple(curves),
        y_unit="%" if percent else "",
    )


def _weighs(run: RunRecord) -> bool:
    """Whether the method can give a negative weight at all; for others a line at zero would say nothing."""
    return any(row.weight_p50 is not None or row.negative_share for row in run.history)


def _weight_panel(number: int, setting: Setting, series: Sequence[str]) -> Panel | None:
    bands: list[Band] = []
    curves: list[Curve] = []
    for run in (run for other, run in setting.runs if other == number):
        rows = [row for row in run.history if all(row.figure(name) is not None for name in _QUANTILES)]
        names = ("epoch", *_QUANTILES)
        xs, p5, p25, p50, p75, p95 = (tuple(row.figure(name) or 0.0 for row in rows) for name in names)
        if xs:
            bands += [Band(number, xs, p5, p95, run.seed, "wide"), Band(number, xs, p25, p75, run.seed, "narrow")]
            curves.append(Curve(number, xs, p50, run.seed, f"{series[number]}, seed {run.seed}, median"))
    if all(len(curve.xs) < 2 for curve in curves):
        return None
    values = [value for band in bands for value in (*band.lows, *band.highs)]
    return Panel(
        WEIGHTS,
        f"Weights: {series[number]}",
        "epoch",
        along([x for curve in curves for x in curve.xs]),
        linear([0.0, *values]),
        curves=tuple(curves),
        bands=tuple(bands),
        series=number,
        y_unit="",
    )
