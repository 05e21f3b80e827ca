"""At how many images does the effect begin? CifarNet with half of the labels wrong, as in the paper's noise curve.

    python -m benchmarks.paper_size --images 2500,5000      # an hour of a core; the same command goes on
    python -m benchmarks.paper_size                         # all 50,000 images too: a day

Each run is one ``deepbilevel train`` with the paper's recipe: 100 epochs, groups of 8 x 8, a learning rate of 0.01 that
falls by 5 % per epoch. Records are copied to ``results/paper-size`` after every run, unfinished ones too. CIFAR-10 is
looked for in ``DEEPBILEVEL_DATA``.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from benchmarks.record_tables import PICTURES, RESULTS, markdown_table
from deepbilevel_lab.drawing.figures import Curve, Dot, Figure, Panel, along, linear, over_values
from deepbilevel_lab.drawing.pictures import write_drawing
from deepbilevel_lab.drawing.svg import draw_figure
from deepbilevel_lab.records import RunRecord, SweepRecord, read_file
from deepbilevel_lab.training.export import export_records

METHODS = ("sgd", "uniform", "bilevel", "cross-validated")
IMAGES = (2500, 5000, 10000, 20000, 50000)
_ALL = IMAGES[-1]
_RECORDS = RESULTS / "paper-size"
_PICTURE = PICTURES / "paper-size.png"
_PAPER = {"sgd": "SGD", "bilevel": "Baseline"}  # the names of the paper's table

Runs = Mapping[tuple[str, int], RunRecord]
"""Runs by method and number of images."""


def command(method: str, images: int, out: Path) -> list[str]:
    """Return the command that makes a run, or goes on with it."""
    words = ["--data=cifar10", "--network=cifarnet", "--noise=uniform:0.5", "--epochs=100", "--seed=0", "--threads=1"]
    words += [f"--method={method}", "--set=group.batch_size=8", "--set=evaluate_every=5", f"--out={out}"]
    words += [] if images == _ALL else [f"--limit={images}"]
    words += [] if method == "sgd" else ["--set=passes=joined"]
    return [sys.executable, "-m", "deepbilevel", "train", *words]


def committed() -> Runs:
    """Return the committed records."""
    records = [read_file(RunRecord, path) for path in sorted(_RECORDS.glob("*/record.json"))]
    records.sort(key=lambda record: record.status == "done")  # of two runs of one kind the finished one counts
    return {(record.spec["method"]["kind"], record.spec["data"]["limit"] or _ALL): record for record in records}


def table() -> str:
    """Return methods by number of images: test accuracy of the last epoch and of the best one, and memorised labels."""
    runs = committed()
    numbers = sorted({images for _, images in runs})
    rows = [
        [method, *(_entry(runs.get((method, images))) for images in numbers), _published(method)] for method in METHODS
    ]
    return markdown_table(["method", *(f"{images:,} images" for images in numbers), "paper, 50,000"], rows)


def _entry(run: RunRecord | None) -> str:
    if run is None or run.final is None or run.best is None:
        return "-"
    figures = (run.final.test, run.best.test, run.final.train)
    text = " / ".join("-" if figure is None else f"{figure:.1f}" for figure in figures)
    return text if run.status == "done" else f"{text} (epoch {run.final.epoch})"


def _published(method: str) -> str:
    paper = _paper().get(method)
    return "" if paper is None else f"{paper[1]:.1f} / - / {paper[0]:.1f}"


def _paper() -> dict[str, tuple[float, float]]:
    """Return training and test accuracy as printed in the paper's Table 1, by method."""
    cells = read_file(SweepRecord, RESULTS / "compact" / "sweep-table1-compact.json").cells
    published = {cell.row: cell.published for cell in cells if cell.column == "CifarNet, 50 % noise"}
    found = {method: published[row] for method, row in _PAPER.items()}
    return {method: (each.train, each.test) for method, each in found.items() if each is not None}


def draw() -> None:
    """Draw all images epoch by epoch, and the last epoch against the number of images."""
    runs = committed()
    panels = (_by_epoch(runs), _by_images(runs))
    looks = {dot.look for panel in panels for dot in panel.dots}
    epochs = sorted({run.final.epoch for run in runs.values() if run.status != "done" and run.final is not None})
    words = (("hollow", f"unfinished: epoch {', '.join(map(str, epochs))}"), ("paper", "paper, Table 1"))
    figure = Figure(
        "paper-size",
        "CifarNet, half of the labels wrong, one seed",
        "",
        METHODS,
        panels,
        keys=tuple(key for key in words if key[0] in looks),
        shown=frozenset(range(len(METHODS))),
    )
    write_drawing(draw_figure(figure), _PICTURE)


def _by_epoch(runs: Runs) -> Panel:
    curves: list[Curve] = []
    for series, method in enumerate(METHODS):
        run = runs.get((method, _ALL))
        rows = [] if run is None else [(float(row.epoch), row.test) for row in run.history if row.test is not None]
        if rows:
            curves.append(Curve(series, *zip(*rows, strict=True)))
    epochs = [x for curve in curves for x in curve.xs]
    y = linear([y for curve in curves for y in curve.ys])
    return Panel("epochs", "All 50,000 images: test accuracy (%)", "epoch", along(epochs), y, curves=tuple(curves))


def _by_images(runs: Runs) -> Panel:
    """Return the panel of last epochs; runs that have not ended are hollow."""
    dots: list[Dot] = []
    curves: list[Curve] = []
    for series, method in enumerate(METHODS):
        points = [
            (float(images), run.final.test, "full" if run.status == "done" else "hollow")
            for (name, images), run in sorted(runs.items(), key=lambda item: item[0][1])
            if name == method and run.final is not None and run.final.test is not None
        ]
        dots += [Dot(series, images, test, look, f"{method}: {test:.1f}") for images, test, look in points]
        for one, next_ in pairwise(points):
            if IMAGES.index(int(next_[0])) == IMAGES.index(int(one[0])) + 1:  # no line over what was not measured
                curves.append(Curve(series, *zip(one[:2], next_[:2], strict=True)))
    for method, (_, test) in _paper().items():
        dots.append(Dot(METHODS.index(method), float(_ALL), test, "paper", f"{method}, paper: {test:.1f}"))
    x = over_values([float(images) for images in {_ALL, *(images for _, images in runs)}])
    y = linear([dot.y for dot in dots])
    return Panel(
        "images", "Test accuracy of the last epoch (%)", "training images", x, y, dots=tuple(dots), curves=tuple(curves)
    )


def main() -> None:
    """Make the runs that are wanted, one after another, smallest first, and keep their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/paper-size"), help="the folder of the runs")
    parser.add_argument("--images", default=",".join(map(str, IMAGES)), help="numbers of images, as in 2500,5000")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, as in sgd,bilevel")
    given = parser.parse_args()
    for images in map(int, given.images.split(",")):
        for method in given.methods.split(","):
            code = subprocess.run(command(method, images, given.out), check=False).returncode
            export_records(given.out, _RECORDS, unfinished=True)
            if code != 0:
                sys.exit(code)


if __name__ == "__main__":
    main()
