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
    typer.echo(
        f"{made.num_sweeps} sweeps and {made.num_runs} runs: {made.num_figures} figures, {made.num_tables} tables\n"
        f"page: {made.page}"
    )
