"""``deepbilevel compare``: train methods under the same conditions, and print one table of results."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepbilevel_lab.cli import options
from deepbilevel_lab.cli.messages import WRONG_USAGE, errors_as_messages
from deepbilevel_lab.cli.places import JOBS_HELP, ON_HELP, Place, read_place
from deepbilevel_lab.cli.resolving import parse_seeds, resolve, split_settings, tell_notes
from deepbilevel_lab.cli.table_options import IgnoreOption, TargetOption, TextOption, read_columns_spec
from deepbilevel_lab.records import SweepRecord, to_json

if TYPE_CHECKING:
    from deepbilevel_lab.sweeps.sweep import Sweep
    from deepbilevel_lab.sweeps.trials import Outcome

_USUAL_METHODS = "sgd,uniform,random,bilevel,cross-validated"


def compare(
    data: options.DataOption = None,
    val: options.ValOption = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="DEEPBILEVEL_DATA", help="Where data sets stand; for csv and folder the data itself.")
    ] = Path("data"),
    target: TargetOption = None,
    text: TextOption = None,
    ignore: IgnoreOption = None,
    network: options.NetworkOption = None,
    weights: options.WeightsOption = None,
    pretrained: options.PretrainedOption = False,
    freeze: options.FreezeOption = False,
    noise: Annotated[str | None, typer.Option(help="Make labels wrong, as in uniform:0.5.")] = None,
    methods: Annotated[
        str, typer.Option(help="Names of --list, as in sgd,bilevel+mixup,bilevel[method.mu=0.1],controls.")
    ] = _USUAL_METHODS,
    seeds: Annotated[str, typer.Option(help="One run of each method per seed, as in 0-4 or 0,2,5.")] = "0-2",
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=VALUES",
            help="Give every method its own value, chosen on noisy labels set aside, as in optimizer.lr=0.01,0.03,0.1.",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help=JOBS_HELP)] = None,
    on: Annotated[str, typer.Option("--on", help=ON_HELP)] = "local",
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training images.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Train on that many images only.")] = None,
    batch_size: options.BatchSizeOption = None,
    num_batches: options.NumBatchesOption = None,
    lr: options.LrOption = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of a run; half the cores (4 at most) unless told.")
    ] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes of a run that decode image files; 0: none.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Any other field, for all methods, as in optimizer.lr=0.1."),
    ] = None,
    spec_file: Annotated[
        Path | None, typer.Option("--spec", help="Begin from a .toml or .json file; the method in it does not count.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of runs, of the record and of the picture.")] = Path("runs"),
    name: Annotated[
        str | None, typer.Option(help="Of the record and the picture, sweep-NAME; one of its own unless told.")
    ] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show the methods there are, and stop.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print only the table, for a document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
) -> None:
    """Train several methods with the same images, visits and initial weights; the same command goes on.

    Example: deepbilevel compare --data digits --noise uniform:0.5 --methods sgd,uniform,bilevel --seeds 0-2 --jobs 2
    """
    if show_list:
        _print_list(as_json=as_json)
        return

    from deepbilevel_lab.cli.side_by_side import conclude
    from deepbilevel_lab.report import draw_comparison
    from deepbilevel_lab.sweeps.comparison import plan, set_selection_aside
    from deepbilevel_lab.sweeps.expressions import read_methods
    from deepbilevel_lab.sweeps.tuning import read_grid
    from deepbilevel_lab.training.own_rules import name_rule

    with errors_as_messages(WRONG_USAGE):
        if as_json and markdown:
            raise ValueError("--json and --markdown are two ways to print the same; choose one")
        _check_settings(settings or [])
        place = read_place(on)
        wanted, numbers = read_methods(methods), parse_seeds(seeds)
        given = {"noise": noise, "epochs": epochs, "data.limit": limit, "threads": threads}
        given |= options.by_key(val, batch_size, num_batches, lr, weights, pretrained=pretrained, freeze=freeze)
        grid = None if tune is None else read_grid(tune)
        base = resolve(
            *(data, data_dir, network, spec_file, given, settings or []),
            columns=read_columns_spec(target, text, ignore),
            plain=True,
            prepare=lambda spec: set_selection_aside(spec) if grid else spec,
        )
        for each in wanted.values():
            name_rule(each.get("method.kind", each["method"]))
        comparison = plan(base.spec, wanted, numbers, tune=grid, name=name)
    if dry_run:
        _print_runs(comparison, as_json=as_json)
        return
    tell_notes(base.notes)
    record, outcomes, files = run_comparison(
        comparison, place, out, data_dir, jobs, workers=workers, quiet=quiet or markdown, as_json=as_json
    )
    picture = comparison.file(out, "png")
    with errors_as_messages():
        draw_comparison(record, picture)
    print_result(record, {**files, "picture": str(picture)}, markdown=markdown, as_json=as_json)
    raise typer.Exit(conclude(outcomes))


def _check_settings(settings: list[str]) -> None:
    for key, _ in split_settings(settings):
        if key.partition(".")[0] == "method":
            raise ValueError(f"--set {key} belongs to one method; write it there, as in bilevel[method.mu=0.1]")
        if key == "seed":
            raise ValueError("--set seed has no effect here; --seeds says which, as in --seeds 3 or 0-4")


def run_comparison(
    comparison: "Sweep",
    place: Place,
    out: Path,
    data_dir: Path,
    jobs: int | None,
    *,
    workers: int = 0,
    quiet: bool = False,
    as_json: bool = False,
    lines_per_run: int = 10,
) -> "tuple[SweepRecord, list[Outcome], dict[str, str]]":
    """Run a comparison and show its progress; return its record, the outcomes and the files it wrote."""
    from deepbilevel_lab.cli.side_by_side import run_and_show
    from deepbilevel_lab.sweeps.sweep import Recorder
    from deepbilevel_lab.sweeps.tuning import tuned_methods
    from deepbilevel_lab.training.interruption import Interruption

    tuned, first = comparison.axis is not None, comparison.seeds[0]
    trials = comparison.trials(seeds=[first] if tuned else None)
    with errors_as_messages(), Interruption(), place.open(out, data_dir, workers=workers) as executor:
        recorder = Recorder(comparison, out, find_record=executor.find_record)
        show = {"quiet": quiet, "as_json": as_json, "also": recorder, "lines_per_run": lines_per_run}
        run = partial(run_and_show, place=executor, **show)
        outcomes = run(trials, jobs=jobs or place.usual_jobs(len(trials)))
        if tuned and all(outcome.status in ("done", "failed") for outcome in outcomes):
            chosen = {(each.row, each.chosen.x) for each in tuned_methods(recorder.record) if each.chosen}
            rest = comparison.trials(lambda cell: (cell.row, cell.x) in chosen, comparison.seeds[1:])
            outcomes += run(rest, jobs=jobs or place.usual_jobs(len(rest))) if rest else []
    return recorder.record, outcomes, {"record": str(recorder.path)}


def print_result(record: SweepRecord, files: dict[str, str], *, markdown: bool = False, as_json: bool = False) -> None:
    """Print the table of a comparison, its caveats, and the files that were written."""
    from deepbilevel_lab.cli.tables import print_table
    from deepbilevel_lab.sweeps.table import describe, list_doubts, make_table, to_markdown

    if as_json:
        cells = [to_json(cell) for cell in record.cells]
        summary = [{key: cell[key] for key in ("row", "settings", "summary", "runs")} for cell in cells]
        typer.echo(json.dumps({"event": "compared", **files, "cells": summary}))
        return
    if markdown:
        typer.echo(to_markdown(record))
        return
    titles, rows = make_table(record)
    print_table(titles, rows, caption=describe(record))
    for doubt in list_doubts(record):
        typer.echo(f"note: {doubt}")
    typer.echo("\n".join(f"{name}: {path}" for name, path in files.items()))


def _print_runs(comparison: "Sweep", *, as_json: bool) -> None:
    from deepbilevel_lab.specs import to_plain

    for trial in comparison.trials():
        if as_json:
            typer.echo(json.dumps({**trial.tags, "id": trial.id, "spec": to_plain(trial.spec)}))
        else:
            typer.echo(f"{trial.label}: {trial.spec.name}-{trial.id}")


def _print_list(*, as_json: bool) -> None:
    from deepbilevel_lab.cli.tables import print_table
    from deepbilevel_lab.sweeps.named_methods import GROUPS, METHODS

    if as_json:
        known = {name: {"group": each.group, "description": each.description} for name, each in METHODS.items()}
        typer.echo(json.dumps({"methods": known, "groups": dict(GROUPS)}))
        return
    rows = [[name, each.group, each.description] for name, each in METHODS.items()]
    described = "; ".join(f"{name}: {what}" for name, what in GROUPS.items())
    caption = f"A group stands for its methods, and all for everything. {described}"
    print_table(["name", "group", "what it is"], rows, caption=caption, numbers=())
