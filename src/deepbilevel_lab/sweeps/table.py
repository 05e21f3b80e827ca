"""The record of a comparison as a table of words, and as Markdown. Reads records; knows no run and no screen."""

from collections.abc import Sequence

from deepbilevel_lab.records import FIGURES, Cell, CellRun, MeanFigure, SweepRecord
from deepbilevel_lab.sweeps.tuning import tuned_methods

_TITLES = {
    "test": "test, last",
    "best": "test, best",
    "picked": "test, picked",
    "selection": "selection",
    "train": "train, noisy labels",
    "train_clean": "train, clean",
}


def make_table(record: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Return the titles of the columns and the rows, a row per method."""
    tuned = None if record.axis is None else {each.row: each for each in tuned_methods(record)}
    # Where labels are as they were found, there are no clean ones beside them; few runs set images aside.
    optional = {"train_clean", "picked", "selection"}
    measured = {name for each in record.cells for name, figure in each.summary.items() if figure is not None}
    shown = [name for name in FIGURES if name not in optional or name in measured]
    titles = {**_TITLES, "train": "train"} if "train_clean" not in shown else _TITLES
    if tuned is None:
        rows = [[each.row, *_results(each, shown)] for each in record.cells]
        return ["method", "seeds", *(titles.get(name, name) for name in shown)], rows
    rows = [
        [row, _number(each.chosen and each.chosen.x), *_results(each.chosen, shown), _range(each.range)]
        for row, each in tuned.items()
    ]
    key = "" if record.axis is None else record.axis.name
    return ["method", key, "seeds", *(titles.get(name, name) for name in shown), "test, over the grid"], rows


def _results(cell: Cell | None, shown: Sequence[str]) -> list[str]:
    """Return seeds and figures of a row."""
    if cell is None:
        return ["not all values tried", *("-" for _ in shown)]
    return [_seeds(cell.runs), *(_cell(cell.summary.get(name)) for name in shown)]


def _range(values: tuple[float, float] | None) -> str:
    return "-" if values is None else f"{values[0]:.2f} to {values[1]:.2f}"


def make_table_beside(record: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows in which ours stands beside what is published, a row per cell."""
    varied = record.axis is not None
    rows: list[list[str]] = []
    for each in record.cells:
        printed = each.published
        place = [each.row, each.column, *([_number(each.x)] if varied else [])]
        figures = [
            text
            for name in ("test", "train", "gap")
            for text in (_cell(each.summary.get(name)), _number(printed.value(name) if printed else None))
        ]
        rows.append([*place, _seeds(each.runs) if each.runs else "none of ours", *figures])
    titles = ["row", "column", *(["x"] if varied else []), "seeds"]
    return [*titles, "test", "printed", "train", "printed", "gap", "printed"], rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def describe(record: SweepRecord) -> str:
    """Return what the figures are."""
    what = record.metric or "accuracy"
    parts = [
        f"{what} in percent, mean ± standard deviation over the seeds that are done",
        "last and train: after the last epoch",
        "best: the best epoch, chosen by looking at the test images",
    ]
    if any(run.figure("picked") is not None for each in record.cells for run in each.runs):
        parts.append("picked: the epoch with the best result on images set aside with labels as noisy (selection)")
    if record.axis is not None:
        parts.append(f"{record.axis.name} of each method was chosen by selection, with seed {record.seeds[0]}")
        parts.append("over the grid: the worst and the best of these runs")
    return "; ".join([*parts, "gap: train less test", "seconds: of a run"])


def list_doubts(record: SweepRecord) -> list[str]:
    """Return what a reader of the table must know beside it: what failed, and what was not equal."""
    doubts = [
        f"{each.row}, seed {run.seed} failed: {run.error}"
        for each in record.cells
        for run in each.runs
        if run.status == "failed"
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


def _cell(figure: MeanFigure | None) -> str:
    return "-" if figure is None else str(figure)
