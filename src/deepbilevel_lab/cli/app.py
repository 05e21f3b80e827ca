"""The commands put together; each lives in the file of its name, which is imported when it is asked for.

The help page of the whole needs a line about each command and nothing else, so these lines stand here a second time.
"""

from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand

_SUMMARIES = {
    "demo": "Compare five methods on digits with half of the labels wrong.",
    "train": "Train a network; rerun the same command to resume after a stop or kill.",
    "compare": "Train several methods on the same images and initial weights; rerun to resume.",
    "recommend": "Find out what to train with, by short trials judged on held-out noisy labels.",
    "audit": "Find wrong labels: train, rank labels by how much the network disagrees, and make a page to decide on.",
    "evaluate": "Measure a trained network: top-1 accuracy, or mean average precision where images have several "
    "labels.",
    "predict": "Predict the class of images or rows, as CSV: path, label, probability, and the probability of each "
    "class.",
    "reproduce": "Run an experiment from the paper and show its numbers beside ours; rerun to resume.",
    "report": "Make one HTML page of sweeps and runs, with every figure as PNG, SVG and PDF and every table as CSV.",
    "doctor": "Check this machine: versions, devices, disk, data sets, and two training steps on synthetic data.",
    "runs": "List, show and compare runs.",
    "data": "List, fetch and check data sets.",
}


class ImportedLater(TyperCommand):
    """A name and a line of help, until somebody calls it or asks for its own help."""

    def load(self) -> Any:
        """Return the command itself."""
        name = str(self.name)
        found = getattr(import_module(f"deepbilevel_lab.cli.{name}"), name)
        holder = typer.Typer()
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=name)
        else:
            holder.command(name)(found)
        return typer.main.get_group(holder).commands[name]

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """Let the command itself read its arguments; from here on it is the one that is run."""
        return self.load().make_context(*arguments, **settings)


app = typer.Typer(
    help="Train neural networks on labels you cannot trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _name, _summary in _SUMMARIES.items():
    app.command(_name, cls=ImportedLater, help=_summary)(lambda: None)


def _print_version(wanted: bool) -> None:
    if wanted:
        from deepbilevel_lab import __version__

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
