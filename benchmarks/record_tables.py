"""Markdown tables from committed records of `compare` and `reproduce`."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from deepbilevel_lab.drawing.pictures import write_drawing
from deepbilevel_lab.drawing.svg import draw_figure
from deepbilevel_lab.records import RunRecord, SweepRecord, read_file
from deepbilevel_lab.records.sweeps import Cell
from deepbilevel_lab.report.cost_figures import growth_figure
from deepbilevel_lab.report.cost_records import Costs
from deepbilevel_lab.report.making import draw_test_curves
from deepbilevel_lab.report.result_figures import result_figures

RESULTS = Path(__file__).parents[1] / "results"
PICTURES = Path(__file__).parents[1] / "docs" / "images"
_DEMO: Mapping[str, str] = {
    "sgd": "SGD",
    "uniform": "uniform weights over the same groups (control)",
    "bilevel": "bilevel, the paper's rule",
    "cross-validated": "cross-validated gradient, ours",
    "elr": "early-learning regularisation (Liu et al. 2020)",
}
_CIFAR: Mapping[str, str] = {
    "clean": "0 %",
    "uniform-20": "20 % uniform",
    "uniform-50": "50 % uniform",
    "worst": "CIFAR-10N `worst` (40 %, by people)",
}
_RATES = (0, 20, 40, 50, 60, 80)


def demo() -> str:
    """Return what `make demo` showed."""
    cells = _read("demo/sweep-demo.json").cells
    rows = [
        [_DEMO[cell.row], *(_figure(cell, name, spread=True) for name in ("train", "test", "best"))] for cell in cells
    ]
    return markdown_table(["", "train, noisy labels", "test, last epoch", "test, best epoch"], rows)


def cifar10_methods() -> str:
    """Return many methods on 5,000 images of CIFAR-10, one learning rate for all."""
    records = [_read(f"cifar10-methods/sweep-cifar10-{name}.json") for name in _CIFAR]
    return markdown_table(["method", *_CIFAR.values()], _side_by_side([record.cells for record in records]))


def draw_curves() -> None:
    """Draw test accuracy over epochs: the demonstration, and half of the labels of CIFAR-10 wrong."""
    wanted = ("sgd", "uniform", "bilevel", "cross-validated", "mixup", "elr")
    for folder, name, about in (
        ("demo", "demo", "1,347 handwritten digits, half of the labels wrong"),
        ("cifar10-methods", "cifar10-uniform-50", "CIFAR-10, 5,000 images, half of the labels wrong"),
    ):
        record = _read(f"{folder}/sweep-{name}.json")
        cells = tuple(cell for method in wanted for cell in record.cells if cell.row == method)
        runs = [read_file(RunRecord, path) for path in (RESULTS / folder).glob("*/record.json")]
        draw_test_curves(replace(record, cells=cells), runs, PICTURES / f"{name}.png", about=about)


def draw_noise_curve() -> None:
    """Draw the paper's noise curve on CifarNet as far as it was run."""
    figure, *_ = result_figures(_read("compact/sweep-noise-curves-cifarnet-compact.json"), "", "accuracy")
    write_drawing(draw_figure(figure), PICTURES / "noise-curve-compact.png")


def draw_cost_growth() -> None:
    """Draw how the cost of an update grows."""
    figure = growth_figure(read_file(Costs, RESULTS / "bench" / "bench.json"), "")
    assert figure is not None
    write_drawing(draw_figure(figure), PICTURES / "cost-growth.png")


def table1() -> str:
    """Return the paper's ablations on CifarNet beside its own numbers."""
    cells = {(cell.row, cell.column): cell for cell in _read("compact/sweep-table1-compact.json").cells}
    columns = ("CifarNet, clean", "CifarNet, 50 % noise")
    rows: list[list[str]] = []
    for row in dict.fromkeys(row for row, _ in cells):
        found = [cells[row, column] for column in columns]
        rows.append([row, *(text for cell in found for text in (_ours(cell), _theirs(cell)))])
    return markdown_table(["row", "clean, ours", "clean, paper", "50 % wrong, ours", "50 % wrong, paper"], rows)


def table1_controls() -> str:
    """Return controls of the ablations at 50 %."""
    shown = {"bilevel": "bilevel, row d)"}  # every mini-batch has its own dropout masks, as in the controls
    rows = [
        [shown.get(cell.row, cell.row), triple(cell)] for cell in _read("compact/sweep-controls-table1-50.json").cells
    ]
    return markdown_table(["method, seed 0", "test, last / best / train"], rows)


def noise_curve() -> str:
    """Return the paper's noise curve on CifarNet."""
    cells = [
        cell for cell in _read("compact/sweep-noise-curves-cifarnet-compact.json").cells if cell.column == "CIFAR-10"
    ]
    rows: list[list[str]] = []
    for row in ("SGD", "Bilevel"):
        at = {round(100 * (cell.x or 0.0)): cell for cell in cells if cell.row == row}
        rows.append([row, *(triple(at[rate]) for rate in _RATES)])
    return markdown_table(["", *(f"{rate} %" for rate in _RATES)], rows)


def comparison() -> str:
    """Return the paper's comparison with other methods, as far as its runs have ended, beside its own numbers."""
    cells = [cell for cell in _read("compact/sweep-comparison-40-compact.json").cells if cell.column == "CIFAR-10"]
    rows = [
        [
            cell.row,
            triple(cell),
            "" if cell.published is None or cell.published.test is None else f"{cell.published.test:.1f}",
        ]
        for cell in cells
    ]
    return markdown_table(["method, seed 0", "test, last / best / train", "paper, last"], rows)


def reproduced() -> str:
    """Return how far every experiment of the paper has been run at the compact scale, and how long a run takes."""
    rows: list[list[str]] = []
    for path in sorted((RESULTS / "compact").glob("sweep-*-compact.json")):
        record = read_file(SweepRecord, path)
        runs = [run for cell in record.cells for run in cell.runs]
        seconds = [run.figure("seconds") for run in runs if run.status == "done"]
        minutes = sorted(each / 60 for each in seconds if each is not None)
        took = f"{minutes[0]:.0f} to {minutes[-1]:.0f}" if minutes else "-"
        name = path.stem.removeprefix("sweep-").removesuffix("-compact")
        rows.append([f"`{name}`", f"{len(minutes)} of {len(runs)}", took])
    return markdown_table(["experiment", "runs finished, of those planned", "minutes per run"], rows)


def tumours() -> str:
    """Return the methods of docs/tables.md on a table with wrong labels."""
    cells = _read("tables/sweep-tumours.json").cells
    rows = [[cell.row, *(_figure(cell, name, spread=True) for name in ("test", "train"))] for cell in cells]
    return markdown_table(["method", "test, last epoch", "train, labels as given"], rows)


def adam() -> str:
    """Return what becomes of Adam and AdamW with each of its inputs, mean and standard deviation over seeds."""
    runs = json.loads((RESULTS / "adam.json").read_text())["runs"]
    rows: list[list[str]] = []
    for optimizer, method in dict.fromkeys((run["optimizer"], run["method"]) for run in runs):
        of_seeds = [run for run in runs if (run["optimizer"], run["method"]) == (optimizer, method)]
        columns = [[run[name] for run in of_seeds] for name in ("last", "best", "train")]
        rows.append([f"{optimizer}, {method}", *(f"{mean(column):.1f} ± {stdev(column):.1f}" for column in columns)])
    return markdown_table(["optimizer, what it gets", "test, last epoch", "test, best epoch", "train"], rows)


def inception() -> str:
    """Return the small Inception at 50 % beside the paper's numbers, and its controls."""
    paper = [
        cell
        for cell in _read("compact/sweep-table1-compact.json").cells
        if cell.column == "Inception, 50 % noise" and cell.summary.get("test") is not None
    ]
    controls = [cell for cell in _read("compact/sweep-controls-table1-inception-50.json").cells if cell.row != "sgd"]
    names = ("train", "train_clean", "test", "best")
    rows = [[cell.row, *(_figure(cell, name) for name in names), _theirs(cell)] for cell in [*paper, *controls]]
    return markdown_table(
        ["", "train, as given", "train, clean", "test, last", "test, best", "paper: train / test"], rows
    )


def _read(path: str) -> SweepRecord:
    return read_file(SweepRecord, RESULTS / path)


def _side_by_side(columns: Sequence[Iterable[Cell]]) -> list[list[str]]:
    by_row = [{cell.row: triple(cell) for cell in cells} for cells in columns]
    return [[row, *(each[row] for each in by_row)] for row in by_row[0]]


def _figure(cell: Cell, name: str, *, spread: bool = False) -> str:
    figure = cell.summary.get(name)
    if figure is None or figure.mean is None:
        return "-"
    return f"{figure.mean:.1f}" + (f" ± {figure.spread:.1f}" if spread and figure.spread is not None else "")


def triple(cell: Cell) -> str:
    """Return test accuracy of the last epoch and of the best one, and training accuracy."""
    if not any(cell.summary.values()):
        return "not run"
    return " / ".join(_figure(cell, name) for name in ("test", "best", "train"))


def _ours(cell: Cell) -> str:
    train, test = (_figure(cell, name, spread=True) for name in ("train", "test"))
    return f"{train} / {test} ({_figure(cell, 'best')})"


def _theirs(cell: Cell) -> str:
    figures = () if cell.published is None else (cell.published.train, cell.published.test)
    return " / ".join("-" if figure is None else f"{figure:.2f}" for figure in figures)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown, in which no line breaks within a number and what belongs to it."""
    lines = [f"| {' | '.join(row)} |".replace(" ± ", "\u00a0±\u00a0").replace(" / ", "\u00a0/ ") for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines])
