"""What a benchmark measured, as tables and a figure. This module knows benchmarks; it does not know runs."""

from collections.abc import Sequence

from deepbilevel_lab.drawing.figures import Curve, Dot, Figure, Panel, linear, over_values
from deepbilevel_lab.report.cost_records import Costs, GrowthAxis, Range
from deepbilevel_lab.report.summaries import distinct
from deepbilevel_lab.report.tables import NOT_PRINTED, Column, Entry, Row, Table

LIMIT = "least possible for bilevel"


def updates_table(costs: Costs) -> Table:
    """Return time and ratios of one update, a part per setting."""
    columns = (
        Column("", "milliseconds"),
        *(Column(f"to {whom}", name) for whom in ("SGD", "accumulation") for name in ("median", "middle half")),
    )
    parts: list[tuple[str, tuple[Row, ...]]] = []
    for setting, contenders in costs.updates.items():
        rows: list[Row] = []
        for each in contenders:
            if each.seconds is None:
                entries = (Entry(f"failed: {each.failed}", look="absent"), *[Entry(NOT_PRINTED)] * 4)
            else:
                milliseconds = Entry(f"{1e3 * each.seconds.median:.1f}")
                entries = (milliseconds, *_ratio(each.to_sgd), *_ratio(each.to_accumulation))
            rows.append(Row(each.name, entries))
        parts.append((setting, tuple(rows)))
    caption = (
        "Processor time of one update on the same samples. Ratios are taken within rounds in which all took turns, "
        "to plain SGD with all samples in one batch, and to gradient accumulation over the same mini-batches."
    )
    return Table(caption, "update", columns, tuple(parts))


def memory_table(costs: Costs) -> Table:
    """Return the most memory an update needs, by setting."""
    names = distinct(name for found in costs.memory.values() for name in found)
    rows = tuple(
        Row(
            name,
            tuple(Entry(f"{found[name]:.2f}" if name in found else NOT_PRINTED) for found in costs.memory.values()),
        )
        for name in names
    )
    caption = "Bytes held above the parameters at the peak, counted; in multiples of the model's size."
    return Table(caption, "peak memory", tuple(Column("", setting) for setting in costs.memory), (("", rows),))


def growth_figure(costs: Costs, slug: str) -> Figure | None:
    """Return how the cost of an image grows, a panel per axis, with the limit drawn in."""
    points = [point for axis in costs.growth for point in axis.points]
    series = [*distinct(name for point in points for name in point.microseconds), LIMIT]
    panels = tuple(_panel(number, axis, series) for number, axis in enumerate(costs.growth) if axis.points)
    if not panels:
        return None
    return Figure(
        slug,
        "How cost grows",
        "Microseconds of processor time per image in one update, medians with the middle half of the rounds. The least "
        "possible is the arithmetic of all passes at the rate of this machine's matrix product, and the bytes that "
        "bilevel must move at the rate at which it copies.",
        tuple(series),
        panels,
        shown=frozenset(range(len(series))),
        series_word="Updates",
    )


def _panel(number: int, axis: GrowthAxis, series: Sequence[str]) -> Panel:
    points = sorted(axis.points, key=lambda point: point.x)
    x = over_values([point.x for point in points])
    dots: list[Dot] = []
    curves: list[Curve] = []
    for index, name in enumerate(series[:-1]):
        measured = [(point, found) for point in points if (found := point.microseconds.get(name)) is not None]
        xs, ys = tuple(point.x for point, _ in measured), tuple(found.median for _, found in measured)
        if measured:
            curves.append(Curve(index, xs, ys))
        for point, found in measured:
            tip = f"{name} · {point.setting} · {found.median:.0f} µs per image ({found.low:.0f} to {found.high:.0f})"
            dots.append(Dot(index, point.x, found.median, "full", tip, y_deviation=(found.high - found.low) / 2))
    limits = tuple(point.limit for point in points)
    curves.append(Curve(len(series) - 1, tuple(point.x for point in points), limits, label=LIMIT))
    values = [0.0, *limits, *(dot.y + (dot.y_deviation or 0.0) for dot in dots)]
    return Panel(
        f"growth-{number}",
        "Microseconds per image",
        axis.axis,
        x,
        linear(values, within=(0.0, float("inf"))),
        dots=tuple(dots),
        curves=tuple(curves),
        y_unit="µs",
    )


def _ratio(spread: Range | None) -> tuple[Entry, Entry]:
    if spread is None:
        return Entry(NOT_PRINTED), Entry(NOT_PRINTED)
    return Entry(f"{spread.median:.3f}"), Entry(f"{spread.low:.2f} to {spread.high:.2f}")
