"""``deepbilevel report``: one page about everything that was measured."""

from pathlib import Path
from typing import Annotated

import typer

from deepbilevel_lab.cli.messages import errors_as_messages


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder with records of sweeps and runs, at any depth.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page, figures and tables; DIR/report by default.")
    ] = None,
) -> None:
    """Make one HTML page of sweeps and runs, with every figure as PNG, SVG and PDF and every table as CSV.

    Example: deepbilevel report results --out report
    """
    from deepbilevel_lab.drawing.pictures import INSTALL
    from deepbilevel_lab.report import make_report

    with errors_as_messages():
        made = make_report(folder, out)
    for problem in made.problems:
        typer.echo(f"not read: {problem.path}: {problem.why}", err=True)
    if not made.pictures:
        typer.echo(f"figures were made as SVG only; for PNG and PDF run: {INSTALL}", err=True)
    counted = {"sweep": made.num_sweeps, "run": made.num_runs, "figure": made.num_figures, "table": made.num_tables}
    sweeps, runs, figures, tables = (f"{count} {name}{'s' * (count != 1)}" for name, count in counted.items())
    typer.echo(f"{sweeps} and {runs}: {figures}, {tables}\npage: {made.page}")
