"""``deepbilevel audit``: which labels of a data set are wrong."""

import math
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepbilevel_lab.cli import options
from deepbilevel_lab.cli.messages import WRONG_USAGE, errors_as_messages
from deepbilevel_lab.cli.resolving import resolve, tell_notes
from deepbilevel_lab.cli.table_options import IgnoreOption, TargetOption, TextOption, read_columns_spec

if TYPE_CHECKING:
    from deepbilevel_lab.audit import Findings
    from deepbilevel_lab.training.folder import RunFolder

_SHOWN = 10


def audit(
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="A folder of images, a .csv table, a data set, or the folder of a run that was trained with "
            "--set audit=true.",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The folder for page and tables; the run is kept in runs/ below it.")
    ] = Path("audit"),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    show: Annotated[
        int | None,
        typer.Option(min=1, help="How many labels the page shows, the most suspicious first; all by default."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="The folder of data sets; by default $DEEPBILEVEL_DATA, where the run found them, or data.",
            show_default=False,
        ),
    ] = None,
    val: options.ValOption = None,
    target: TargetOption = None,
    text: TextOption = None,
    ignore: IgnoreOption = None,
    network: options.NetworkOption = None,
    weights: options.WeightsOption = None,
    pretrained: options.PretrainedOption = False,
    freeze: options.FreezeOption = False,
    method: Annotated[str | None, typer.Option(help="The rule, as in `train`; sgd by default.")] = None,
    loss: Annotated[str | None, typer.Option(help="The loss, as in `train`; cross-entropy by default.")] = None,
    labels: Annotated[str | None, typer.Option(help="Other labels, as in `train`.")] = None,
    noise: Annotated[
        str | None, typer.Option(help="Corrupt labels first, to try the command, as in uniform:0.2.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the images.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train on this many images only.")] = None,
    batch_size: options.BatchSizeOption = None,
    num_batches: options.NumBatchesOption = None,
    lr: options.LrOption = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed of all random numbers.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads per run; half the cores (at most 4) by default.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode image files; 0: none.")] = 0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other field, as in optimizer.lr=0.1.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
) -> None:
    """Find wrong labels: train, rank labels by how much the network disagrees, and make a page to decide on.

    Rerun the same command to resume. Decisions made on the page are trained on with
    `deepbilevel train --data photos/ --labels corrected.csv`.

    Example: deepbilevel audit photos/ --out audit/
    """
    from deepbilevel_lab.processes import Launch
    from deepbilevel_lab.training.folder import RunFolder

    launch = Launch.find()
    given = {"method": method, "loss": loss, "noise": noise, "epochs": epochs, "data.labels": labels}
    given |= {"data.limit": limit, "seed": seed, "threads": threads}
    given |= options.by_key(val, batch_size, num_batches, lr, weights, pretrained=pretrained, freeze=freeze)
    in_environment = os.environ.get("DEEPBILEVEL_DATA")
    folder = RunFolder(Path(place))
    if folder.spec_file.is_file() and folder.record_file.is_file():
        if not launch.is_first:
            return
        with errors_as_messages(WRONG_USAGE):
            asked = (network, target, text, ignore, *given.values())
            if settings or any(value is not None for value in asked):
                raise ValueError(f"{place} is a run, which is not trained again; drop the options of training")
        with errors_as_messages():
            record = folder.read_record()
            found_in = record.data_dir if record is not None else None
            _report(folder, data_dir or Path(in_environment or found_in or "data"), out, show, open_page=open_page)
        return

    from deepbilevel_lab.cli.train import run_and_watch
    from deepbilevel_lab.training.spreading import check_spread

    data_dir = data_dir or Path(in_environment or "data")
    with errors_as_messages(WRONG_USAGE, silent=not launch.is_first):
        _check_place(place)
        given = {"audit": True, "group.on_rare": "repeat", **given}
        if method is None:
            given["method"] = "sgd"  # finds most: docs/audit-results.md
        columns = read_columns_spec(target, text, ignore)
        resolved = resolve(place, data_dir, network, None, given, settings or [], columns=columns, plain=True)
        spec = resolved.spec
        if not spec.audit:
            raise ValueError("audit=false leaves nothing to report; drop it, or train with `deepbilevel train`")
        check_spread(spec, launch.size)
    tell_notes(resolved.notes if launch.is_first else [])
    runs = out / "runs"
    run_and_watch(spec, launch, quiet=quiet, out=runs, data_dir=data_dir, workers=workers)
    if launch.is_first:
        with errors_as_messages():
            _report(RunFolder.of(spec, runs), data_dir, out, show, open_page=open_page)


def _check_place(place: str) -> None:
    from deepbilevel_lab.data import DATA_SETS

    path = Path(place)
    if place not in DATA_SETS and not path.is_dir() and path.suffix not in (".csv", ".parquet"):
        raise ValueError(
            f"{place} is no folder, no table (.csv, .parquet) and no data set; `deepbilevel data list` shows the "
            "data sets"
        )
    if place in DATA_SETS and DATA_SETS[place].own:
        raise ValueError(f"{place} needs the place of your images: give the folder or the table itself")


def _report(folder: "RunFolder", data_dir: Path, out: Path, show: int | None, *, open_page: bool) -> None:
    from rich.console import Console
    from rich.progress import Progress

    from deepbilevel_lab.audit import find_issues, write_findings

    findings = find_issues(folder, data_dir)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("making pictures", total=None)
        written = write_findings(
            findings, out, show=show, on_picture=lambda done, total: progress.update(bar, completed=done, total=total)
        )
    _print(findings)
    tables = [written.table, written.probabilities, *([written.parquet] if written.parquet else [])]
    typer.echo(f"tables: {', '.join(map(str, tables))}\npage: {written.page}")
    if open_page and not webbrowser.open(written.page.resolve().as_uri()):
        typer.echo(f"no browser could be started; open {written.page} yourself", err=True)


def _print(findings: "Findings") -> None:
    from deepbilevel_lab.audit.writing import describe
    from deepbilevel_lab.cli.tables import print_table

    typer.echo("\n".join(describe(findings)))
    names = findings.class_names
    rows: list[list[str]] = []
    for issue, _ in zip(findings.issues, range(_SHOWN), strict=False):
        if issue.class_index is None:
            labels = [names[label] if label >= 0 else "" for label in (issue.given_label, issue.predicted_label)]
        else:
            about = names[issue.class_index]
            labels = [about if label else f"not {about}" for label in (issue.given_label, issue.predicted_label)]
        file = os.fsencode(findings.files[issue.index]).decode(errors="replace")
        rows.append(
            [
                str(issue.index),
                *([file] if file else []),
                *labels,
                f"{issue.label_score:.2f}",
                "-" if math.isnan(issue.p_wrong) else f"{issue.p_wrong:.3f}",
            ]
        )
    has_files = any(findings.files)
    titles = ["index", *(["path"] if has_files else []), "given", "suggested", "score", "p_wrong"]
    numbers = [len(titles) - 2, len(titles) - 1]
    print_table(titles, rows, caption=f"the {len(rows)} most suspicious labels", numbers=numbers)
