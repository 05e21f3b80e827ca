"""The record of a comparison as a table of words, and as Markdown. Reads records; knows no run and no screen."""

from collections.abc import Sequence

from deepbilevel_lab.records import Cell, CellRun, MeanFigure, SweepRecord
from deepbilevel_lab.sweeps.tuning import tuned_methods

_TITLES = {"test": "last", "train_clean": "clean", "optimizer.lr": "lr"}
# The gap says something where all labels are right. `selection` chooses settings and epochs, and is in the record.
_WITH_NOISE = ("test", "picked", "best", "train", "train_clean", "seconds")
_WITHOUT = ("test", "picked", "best", "train", "gap", "seconds")


def make_table(record: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Return the titles of the columns and the rows, a row per method."""
    tuned = None if record.axis is None else {each.row: each for each in tuned_methods(record)}
    measured = {name for each in record.cells for name, figure in each.summary.items() if figure is not None}
    shown = [
        name
        for name in (_WITH_NOISE if "train_clean" in measured else _WITHOUT)
        if name != "picked" or name in measured  # few runs set images aside
    ]
    titles = [_TITLES.get(name, name) for name in shown]
    if tuned is None:
        return ["method", "seeds", *titles], [[each.row, *_results(each, shown)] for each in record.cells]
    rows = [
        [row, _number(each.chosen and each.chosen.x), *_results(each.chosen, shown), _range(each.range)]
        for row, each in tuned.items()
    ]
    key = "" if record.axis is None else _TITLES.get(record.axis.name, record.axis.name)
    return ["method", key, "seeds", *titles, "grid"], rows


def _results(cell: Cell | None, shown: Sequence[str]) -> list[str]:
    """Return seeds and figures of a row."""
    if cell is None:
        return ["not all values tried", *("-" for _ in shown)]
    return [_seeds(cell.runs), *(_short(cell.summary.get(name)) for name in shown)]


def _short(figure: MeanFigure | None) -> str:
    """Return a figure with one digit: the error of a test set is larger."""
    if figure is None or figure.mean is None:
        return "-"
    return f"{figure.mean:.1f}" + ("" if figure.spread is None else f" ± {figure.spread:.1f}")


def _range(values: tuple[float, float] | None) -> str:
    return "-" if values is None else f"{values[0]:.1f} to {values[1]:.1f}"


def make_table_beside(record: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows in which ours stands beside what is published, a row per cell.

    The column is left out if there is only one, and the gap unless the paper prints it.
    """
    cells = record.cells
    published = {
        name: any(each.published is not None and each.published.value(name) is not None for each in cells)
        for name in ("test", "train", "gap")
    }
    shown = ["test", "train", *(["gap"] if published["gap"] else [])]
    columns: list[tuple[str, list[str]]] = [("method", [each.row for each in cells])]
    if len({each.column for each in cells}) > 1:
        columns.append(("column", [each.column for each in cells]))
    if record.axis is not None:
        columns.append((record.axis.label, [_number(each.x) for each in cells]))
    columns.append(("seeds", [_seeds(each.runs) if each.runs else "none of ours" for each in cells]))
    for name in shown:
        columns.append((name, [_short(each.summary.get(name)) for each in cells]))
        if published[name]:
            columns.append((f"{name} (paper)", [_published(each, name) for each in cells]))
    return [title for title, _ in columns], [list(row) for row in zip(*(column for _, column in columns), strict=True)]


def describe_beside(record: SweepRecord) -> str:
    """Return what the figures are where ours stand beside what is published."""
    what = record.metric or "accuracy"
    reduced = "" if record.reduced is None else f"; ours is reduced: {record.reduced}"
    return (
        f"{what} in percent after the last epoch, ours as mean ± standard deviation over the seeds that are done; "
        f"train: on labels as given{reduced}"
    )


def _published(cell: Cell, name: str) -> str:
    return _number(cell.published.value(name) if cell.published else None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def describe(record: SweepRecord) -> str:
    """Return what the figures are."""
    what = record.metric or "accuracy"
    titles = make_table(record)[0]
    parts = [
        f"{what} in percent, mean ± standard deviation over the seeds that are done",
        "last: test after the last epoch",
        *(
            ["picked: test at the epoch with the best result on images set aside, labels as noisy"]
            * ("picked" in titles)
        ),
        "best: test at the best epoch, chosen by looking at the test images",
        "train: after the last epoch, on labels as given" + (" and on clean ones" if "clean" in titles else ""),
    ]
    if record.axis is not None:
        parts.append(f"{record.axis.name} was chosen by the images set aside, with seed {record.seeds[0]}")
        parts.append("grid: last over all its values, worst to best")
    return "; ".join([*parts, *(["gap: train less test"] if "gap" in titles else []), "seconds: of a run"])


def list_doubts(record: SweepRecord) -> list[str]:
    """Return what a reader of the table must know beside it: what failed, and what was not equal."""
    doubts = [
        f"{each.row}, seed {run.seed} {run.status}: {run.error}"
        for each in record.cells
        for run in each.runs
        if run.status == "failed" or run.error is not None
    ]
    # Methods are compared where they were tried on the same; another column may be another network, and longer.
    places: dict[tuple[str, float | None], dict[str, int]] = {}
    for each in record.cells:
        for run in each.runs:
            if run.status == "done" and run.images_seen is not None:
                places.setdefault((each.column, each.x), {})[each.row] = run.images_seen
    for (column, x), seen in places.items():
        if len(set(seen.values())) > 1:
            where = ", ".join([column, *([] if x is None else [f"{x:g}"])])
            listed = ", ".join(f"{name} {number:,}" for name, number in seen.items())
            doubts.append(f"not all methods saw the same number of images on {where}: {listed}")
    return doubts


def to_markdown(record: SweepRecord) -> str:
    """Return the table for a document."""
    titles, rows = make_table(record)
    lines = [titles, ["---", *("---:" for _ in titles[1:])], *rows]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return "\n\n".join([table, f"{describe(record)}.", *(f"Note: {doubt}." for doubt in list_doubts(record))])


def _seeds(runs: Sequence[CellRun]) -> str:
    """Return how many runs stand behind a row.

    >>> _seeds([CellRun(0, None, "done", None, {}), CellRun(1, None, "failed", "nan", None)])
    '1 of 2, 1 failed'
    """
    counts: dict[str, int] = {}
    for run in runs:
        counts[run.status] = counts.get(run.status, 0) + 1
    done = counts.pop("done", 0)
    rest = [f"{count} {status}" for status, count in counts.items()]
    return str(done) if not rest else ", ".join([f"{done} of {len(runs)}", *rest])
