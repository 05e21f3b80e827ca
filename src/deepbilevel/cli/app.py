"""The commands put together; each lives in a file of its own."""

from typing import Annotated

import typer

from deepbilevel import __version__
from deepbilevel.cli.bench import bench
from deepbilevel.cli.compare import compare
from deepbilevel.cli.data import data
from deepbilevel.cli.demo import demo
from deepbilevel.cli.doctor import doctor
from deepbilevel.cli.evaluate import evaluate
from deepbilevel.cli.export import export
from deepbilevel.cli.predict import predict
from deepbilevel.cli.report import report
from deepbilevel.cli.reproduce import reproduce
from deepbilevel.cli.runs import runs
from deepbilevel.cli.train import train

app = typer.Typer(
    help="Train neural networks on labels you cannot trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(train)
app.command()(compare)
app.command()(evaluate)
app.command()(predict)
runs.command()(export)
app.add_typer(runs, name="runs")
app.command()(reproduce)
app.command()(report)
app.add_typer(data, name="data")
app.command()(doctor)
app.command()(bench)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deepbilevel {__version__}")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]  # typer calls it
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass
