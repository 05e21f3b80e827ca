"""``deepbilevel demo``: a comparison on real digits with wrong labels, small enough to take about a minute."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from deepbilevel_lab.cli.compare import print_result, run_comparison
from deepbilevel_lab.cli.messages import errors_as_messages
from deepbilevel_lab.cli.places import Place
from deepbilevel_lab.cli.tables import in_lines
from deepbilevel_lab.records import MeanFigure, SweepRecord

_METHODS = "sgd,uniform,bilevel,cross-validated,elr"
_NOISE = "uniform:0.5"


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to train each method with.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 50,
    jobs: Annotated[int, typer.Option(min=0, help="Runs in parallel; 0: one per processor core.")] = 0,
    out: Annotated[Path, typer.Option(help="The folder for runs, record and picture.")] = Path("demo"),
) -> None:
    """Compare five methods on digits with half of the labels wrong.

    They are SGD, the paper's rule and its control, our own rule, and early-learning regularisation (ELR).

    Run it again and it resumes; finished runs are not repeated. Example: deepbilevel demo --seeds 1 --epochs 10
    """
    from deepbilevel_lab.cli.resolving import change_spec
    from deepbilevel_lab.cli.side_by_side import conclude
    from deepbilevel_lab.report import draw_test_curves
    from deepbilevel_lab.sweeps.comparison import plan
    from deepbilevel_lab.sweeps.expressions import read_methods
    from deepbilevel_lab.training import default_spec

    jobs = jobs or os.cpu_count() or 1
    # A network this small is fastest on one CPU thread, with one run per core.
    given = {"noise": _NOISE, "epochs": epochs, "threads": 1, "device": "cpu"}
    base = change_spec(default_spec("digits"), given, [])
    comparison = plan(base, read_methods(_METHODS), range(seeds), name="demo")
    typer.echo(
        "1,347 handwritten digits, half of their labels wrong, and a small CNN. For each seed, all methods have the "
        "same initial weights, learning rate and number of steps.\nTo vary this comparison, begin with:\n"
        f"  deepbilevel compare --data digits --noise {_NOISE} --methods {_METHODS} --seeds 0-{seeds - 1} "
        f"--epochs {epochs} --threads 1 --set device=cpu --jobs {jobs} --name demo --out {shlex.quote(str(out))}"
    )
    record, outcomes, files = run_comparison(comparison, Place(), out, Path("data"), jobs, lines_per_run=2)
    picture = comparison.file(out, "png")
    with errors_as_messages():
        drawn = draw_test_curves(record, [each.record for each in outcomes if each.record is not None], picture)
    print_result(record, {**files, "picture": str(picture)} if drawn else files)
    if (text := describe_result(record)) is not None:
        typer.echo(in_lines(text))
    raise typer.Exit(conclude(outcomes))


def describe_result(record: SweepRecord) -> str | None:
    """Return what the comparison shows, whichever way it went; nothing while a method has no finished run."""
    figures = {
        cell.row: [figure for name in ("train", "best", "test") if (figure := cell.summary.get(name)) is not None]
        for cell in record.cells
    }
    if any(len(of_method) < 3 for of_method in figures.values()):
        return None
    sgd, uniform, bilevel, ours, elr = (figures[name] for name in _METHODS.split(","))
    return (
        f"SGD reproduced {sgd[0].mean:.0f} % of the noisy labels; its test accuracy was {sgd[1].mean:.1f} % at the "
        f"best epoch, which takes held-out labels to find, and {sgd[2].mean:.1f} % at the last. There the "
        f"paper's rule, bilevel, is {_difference(bilevel[2], sgd[2])} SGD and {_difference(bilevel[2], uniform[2])} "
        "its control, uniform weights over the same groups; our cross-validated gradient is "
        f"{_difference(ours[2], sgd[2])} SGD, and early-learning regularisation (elr), an established method, "
        f"{_difference(elr[2], sgd[2])} it."
    )


def _difference(ours: MeanFigure, theirs: MeanFigure) -> str:
    gap = (ours.mean or 0.0) - (theirs.mean or 0.0)
    deviation = max(ours.spread or 0.0, theirs.spread or 0.0)
    doubt = " (no more than the standard deviation over seeds)" if abs(gap) <= deviation else ""
    return f"{abs(gap):.1f} points{doubt} {'above' if gap >= 0 else 'below'}"
