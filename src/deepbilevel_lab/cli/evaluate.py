"""``deepbilevel evaluate``: how good the network of a finished run is."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepbilevel_lab.cli.messages import errors_as_messages
from deepbilevel_lab.cli.options import NamedNetworkOption
from deepbilevel_lab.records import clean as printable

if TYPE_CHECKING:
    from deepbilevel_lab.training.assessment import Assessment

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run, or its model file.")]


def evaluate(
    run: RunArgument,
    data: Annotated[
        str | None, typer.Option(help="Another data set from the catalog, a folder of images, or a table.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder of data sets. By default $DEEPBILEVEL_DATA, or where the run found them.",
            show_default=False,
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Which part of the run's data: test (the default), train, or another split.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="A named set of labels, such as `worst` of CIFAR-10N.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use this many images, in proportion to the classes.")
    ] = None,
    crops: Annotated[
        int | None, typer.Option(min=1, help="Average over this many random crops of each image; 1 uses the centre.")
    ] = None,
    network: NamedNetworkOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a trained network: top-1 accuracy, or mean average precision where images have several labels.

    Without options on the run's own test images, which gives the figure in its record.

    Example: deepbilevel evaluate runs/digits-digit-cnn-bilevel-5d92f0ebad
    """
    from rich.console import Console
    from rich.progress import Progress

    from deepbilevel_lab.networks.named_code import name_code
    from deepbilevel_lab.training.assessment import Images, assess
    from deepbilevel_lab.training.folder import RunFolder
    from deepbilevel_lab.training.model_file import load_model
    from deepbilevel_lab.training.prediction import Predictor

    console = Console(stderr=True)
    wanted = Images(data, data_dir, split, labels, limit)
    with errors_as_messages(), Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("evaluating", total=None)
        name_code(network or "")
        predictor = Predictor(load_model(run))
        record = RunFolder(run if run.is_dir() else run.parent).read_record()
        fallback_dir = Path(os.environ.get("DEEPBILEVEL_DATA") or (record and record.data_dir) or "data")
        result = assess(
            predictor,
            wanted,
            fallback_dir,
            crops=crops,
            on_batch=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if predictor.note:
        typer.echo(f"note: {predictor.note}", err=True)
    comparable = wanted.is_run_test and crops is None
    recorded = record.figure("test") if comparable and record is not None and record.status == "done" else None
    if as_json:
        typer.echo(json.dumps({"run": str(run), "id": predictor.spec.id, **result.to_plain(), "recorded": recorded}))
        return
    _print(result)
    if recorded is not None and recorded != result.score:
        typer.echo(
            f"note: the record says {recorded:.2f}; other images, another device or another version of torch?", err=True
        )


def _print(result: "Assessment") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    what = "average precision" if result.metric == "mAP" else "accuracy"
    table = Table("class", f"{result.noun}s", what, title=escape(f"{result.data} {result.split}"))
    if result.clean_score is not None:
        table.add_column(f"{what}, clean labels")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in result.classes:
        clean = [_percent(each.clean_score)] if result.clean_score is not None else []
        table.add_row(escape(printable(each.name)), f"{each.images:,}", _percent(each.score), *clean)
    console.print(table)
    overall = "mean average precision" if result.metric == "mAP" else "top-1 accuracy"
    crops = f", {result.crops} crops of each" if result.crops > 1 else ""
    clean = f", {_percent(result.clean_score)} on clean labels" if result.clean_score is not None else ""
    counted = f"{result.images:,} {result.noun}s{crops}, {len(result.classes)} classes"
    console.print(
        f"{overall} {_percent(result.score)}{clean}; {counted}",
        highlight=False,
        soft_wrap=True,
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"
