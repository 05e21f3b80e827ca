"""``deepbilevel runs export``: records to share, without networks and checkpoints."""

from pathlib import Path
from typing import Annotated

import typer

from deepbilevel_lab.cli.messages import WRONG_USAGE, errors_as_messages


def export(
    to: Annotated[Path, typer.Argument(help="The folder to write to.")],
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
) -> None:
    """Copy the records of finished runs and of sweeps, without folders of this machine in them.

    Example: deepbilevel runs export results/mine --out runs
    """
    from deepbilevel_lab.training.export import export_records

    with errors_as_messages(WRONG_USAGE):
        written = export_records(out, to)
    typer.echo(f"{len(written)} records are in {to}; look at them with: deepbilevel report {to}")
