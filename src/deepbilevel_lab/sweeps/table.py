"""The record of a comparison as a table of words, and as Markdown. Reads records; knows no run and no screen."""

from collections.abc import Sequence

from deepbilevel_lab.records import FIGURES, CellRun, MeanFigure, SweepRecord

_TITLES = {"test": "test, last", "best": "test, best", "train": "train, noisy labels", "train_clean": "train, clean"}


def make_table(record: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Return the titles of the columns and the rows, a row per method."""
    # Where labels are as they were found, there are no clean ones beside them.
    shown = [
        name
        for name in FIGURES
        if name != "train_clean" or any(each.summary.get(name) is not None for each in record.cells)
    ]
    titles = {**_TITLES, "train": "train"} if "train_clean" not in shown else _TITLES
    rows = [[each.row, _seeds(each.runs), *(_cell(each.summary.get(name)) for name in shown)] for each in record.cells]
    return ["method", "seeds", *(titles.get(name, name) for name in shown)], rows


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
    return (
        f"{what} in percent, mean ± standard deviation over the seeds that are done; last and train: after the last "
        "epoch; best: the best epoch, chosen by looking at the test images; gap: train less test; seconds: of a run"
    )


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
