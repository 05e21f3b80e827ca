"""``deepbilevel reproduce``: the paper's tables and figures, each by one command."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepbilevel.cli.messages import WRONG_USAGE, errors_as_messages
from deepbilevel.cli.places import JOBS_HELP, ON_HELP, Place, read_place
from deepbilevel.cli.resolving import parse_seeds

if TYPE_CHECKING:
    from deepbilevel.sweeps.sweep import Cell, Sweep
    from deepbilevel.sweeps.trials import Trial
    from deepbilevel_paper import Experiment, Scale

_LIST = "list"


def reproduce(
    experiment: Annotated[str, typer.Argument(help="A name that `deepbilevel reproduce list` shows, or list.")],
    scale: Annotated[
        str, typer.Option(help="paper, compact (an evening on two cores) or smoke (seconds a run, made images).")
    ] = "compact",
    seeds: Annotated[str, typer.Option(help="One run of every cell per seed, as in 0-4 or 0,2,5.")] = "0",
    rows: Annotated[
        list[str] | None,
        typer.Option("--row", help="Only the row of this name, or rows with this text; may be repeated."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", help="Only the column of this name, or columns with this text; may be repeated."),
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="Only these values of what a figure varies, as in 0,0.2,0.5.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help=JOBS_HELP)] = None,
    on: Annotated[str, typer.Option("--on", help=ON_HELP)] = "local",
    threads: Annotated[int, typer.Option(min=1, help="Threads of a run.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; the fastest there is unless told.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes of a run that decode image files; 0: none.")] = 0,
    data_dir: Annotated[
        Path, typer.Option(envvar="DEEPBILEVEL_DATA", help="Where data sets stand; smoke makes its own.")
    ] = Path("data"),
    out: Annotated[Path | None, typer.Option(help="The folder of runs and records; runs/SCALE unless told.")] = None,
    probe: Annotated[
        bool | None,
        typer.Option(help="With list: measure this machine anew, or not at all; once unless told.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
) -> None:
    """Run an experiment of the paper beside the numbers it prints; the same command goes on where it was stopped.

    Example: deepbilevel reproduce table1 --column CifarNet --seeds 0-1 --jobs 2
    """
    from deepbilevel.sweeps.earlier import recorded_seeds, refuse_to_lose
    from deepbilevel.training.defaults import best_device
    from deepbilevel_paper import EXPERIMENTS, find_experiment, find_scale
    from deepbilevel_paper.sweep import make_sweep

    with errors_as_messages(WRONG_USAGE):
        place = read_place(on)
        size, numbers = find_scale(scale), parse_seeds(seeds)
        fields = {"threads": threads, "device": device or best_device()}
        if experiment == _LIST:
            if rows or columns or at or dry_run:
                raise ValueError("list shows every experiment whole; --row, --column, --at and --dry-run belong to one")
            _print_list(list(EXPERIMENTS.values()), size, len(numbers), fields, data_dir, probe=probe, as_json=as_json)
            return
        chosen = find_experiment(experiment)
        out = out or Path("runs") / size.name
        sweep = make_sweep(chosen, size, numbers, **fields)
        recorded = sweep.file(out, "json")
        # The record is that of all seeds there have been, not only of those that are run today.
        sweep = make_sweep(chosen, size, sorted({*numbers, *recorded_seeds(recorded)}), **fields)
        wanted = _choose_cells(sweep, rows or [], columns or [], at)
        trials = sweep.trials(wanted.__contains__, numbers)
        if dry_run:
            for trial in trials:
                typer.echo(f"{trial.label}: {trial.spec.name}-{trial.id}")
            return
        refuse_to_lose(recorded, sweep)
        data_dir = _find_data(chosen, size, wanted, data_dir, out)
    _run(sweep, wanted, trials, place, out, data_dir, jobs, workers, quiet=quiet, as_json=as_json)


def _choose_cells(sweep: "Sweep", rows: list[str], columns: list[str], at: str | None) -> "list[Cell]":
    """Return the cells in the rows and columns that are named, at the values that are."""
    has_runs = [cell for cell in sweep.cells if cell.specs]
    in_rows = _choose_texts("row", rows, [cell.row for cell in has_runs], sweep.name)
    in_columns = _choose_texts("column", columns, [cell.column for cell in has_runs], sweep.name)
    at_values = _choose_values(at, [cell.x for cell in has_runs], sweep.name)
    found = [c for c in has_runs if c.row in in_rows and c.column in in_columns and c.x in at_values]
    if not found:
        raise ValueError(f"no cell of {sweep.name} is in --row {rows} and --column {columns} at once; drop one of them")
    return found


def _choose_texts(option: str, parts: list[str], texts: list[str], name: str) -> set[str]:
    """Return the texts that hold one of the parts, in whatever case; a part that is a whole text means that one."""
    chosen: set[str] = set()
    for part in parts:
        holding = {text for text in texts if part.lower() in text.lower()}
        chosen |= {text for text in holding if part.lower() == text.lower()} or holding
        if not holding:
            listed = ", ".join(dict.fromkeys(texts))
            raise ValueError(f"no {option} of {name} has --{option} {part!r}; there are {listed}")
    return chosen or set(texts)


def _choose_values(at: str | None, values: "list[float | None]", name: str) -> "set[float | None]":
    if at is None:
        return set(values)
    known = list(dict.fromkeys(value for value in values if value is not None))
    if not known:
        raise ValueError(f"--at {at!r}: {name} is a table, which varies no number; choose by --row and --column")
    listed = ", ".join(f"{value:g}" for value in known)
    try:
        wanted = {float(part) for part in at.split(",")}
    except ValueError:
        raise ValueError(f"--at must be numbers such as {listed}, but got {at!r}") from None
    if strange := sorted(wanted - set(known)):
        raise ValueError(f"--at {strange[0]:g}: {name} has no such value; there are {listed}")
    return {*wanted}


def _find_data(experiment: "Experiment", scale: "Scale", wanted: "list[Cell]", data_dir: Path, out: Path) -> Path:
    """Return the folder of the data; what is missing for the wanted cells is told with the way to get it."""
    from deepbilevel_paper.made_data import make_data
    from deepbilevel_paper.needed_data import missing_data

    if scale.made_data:
        made = out / "made-data"
        make_data(made, sorted({cell.spec.data.name for cell in experiment.cells(scale)}))
        return made
    missing = missing_data((spec for cell in wanted for spec in (*cell.before, *cell.specs)), data_dir)
    if missing:
        listed = "\n".join(f"  {each.name}: {each.remedy}" for each in missing)
        raise FileNotFoundError(f"{experiment.name} needs data that is not in {data_dir}:\n{listed}")
    return data_dir


def _run(
    sweep: "Sweep",
    wanted: "list[Cell]",
    trials: "list[Trial]",
    place: Place,
    out: Path,
    data_dir: Path,
    jobs: int | None,
    workers: int,
    *,
    quiet: bool,
    as_json: bool,
) -> None:
    from deepbilevel.cli.side_by_side import conclude, run_and_show
    from deepbilevel.cli.tables import print_table
    from deepbilevel.sweeps.sweep import Recorder
    from deepbilevel.sweeps.table import describe, list_doubts, make_table_beside

    with errors_as_messages(), place.open(out, data_dir, workers=workers) as executor:
        # Cells that are not wanted today may have been run before, elsewhere too: then their exported records are here.
        recorder = Recorder(sweep, out, find_record=executor.find_record)
        jobs = jobs or place.usual_jobs(len(trials))
        outcomes = run_and_show(trials, executor, jobs, quiet=quiet, as_json=as_json, also=recorder)
    record = recorder.record
    if as_json:
        typer.echo(json.dumps({"event": "reproduced", "record": str(recorder.path), "cells": record["cells"]}))
    else:
        shown = {(cell.row, cell.column, cell.x) for cell in wanted}
        cells = [c for c in record["cells"] if (c["row"], c["column"], c["x"]) in shown or not c["runs"]]
        titles, rows = make_table_beside({**record, "cells": cells})
        print_table(titles, rows, caption=describe(record), numbers=range(2, len(titles)))
        for doubt in list_doubts(record):
            typer.echo(f"note: {doubt}")
        typer.echo(f"record: {recorder.path}; a page of it all: deepbilevel report {out}")
    raise typer.Exit(conclude(outcomes))


def _print_list(
    experiments: "list[Experiment]",
    scale: "Scale",
    num_seeds: int,
    fields: dict[str, Any],
    data_dir: Path,
    *,
    probe: bool | None,
    as_json: bool,
) -> None:
    from rich.console import Console
    from rich.progress import track

    from deepbilevel.cli.tables import print_table
    from deepbilevel.training.memory import keep_freed_memory
    from deepbilevel_paper import runs_of
    from deepbilevel_paper.estimate import Probe, sample_visits
    from deepbilevel_paper.needed_data import missing_data, specs_of

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepbilevel" / "speeds.json"
    measured = Probe(cache, anew=probe is True)
    keep_freed_memory()  # as the processes do that train
    listed: list[dict[str, Any]] = []
    console = Console(stderr=True)
    for each in track(experiments, "measuring", console=console, transient=True, disable=probe is False):
        specs = runs_of([cell.changed(**fields) for cell in each.cells(scale)], seeds=range(num_seeds))
        absent = [] if scale.made_data else [missing.name for missing in missing_data(specs_of(each), data_dir)]
        listed.append(
            {
                "name": each.name,
                "title": each.title,
                "where": each.where,
                "runs": len(specs),
                "sample_visits": sum(map(sample_visits, specs)),
                "hours": None if probe is False else measured.hours(specs),
                "missing_data": absent,
            }
        )
    if as_json:
        for row in listed:
            typer.echo(json.dumps(row))
        return
    where = f"{fields['device']}, {fields['threads']} thread(s)"
    print_table(
        ["name", "what", "in the paper", "runs", "million visits", "hours", "data missing"],
        [
            [
                row["name"],
                row["title"],
                row["where"],
                str(row["runs"]),
                f"{row['sample_visits'] / 1e6:,.2f}",
                "-" if row["hours"] is None else f"{row['hours']:,.1f}",
                ", ".join(row["missing_data"]) or "-",
            ]
            for row in listed
        ],
        caption=f"Scale {scale.name}: {scale.description}. {num_seeds} seed(s). Hours: one run after another on this "
        f"machine ({where}), from a few timed steps; decoding of files is not in them.",
        numbers=range(3, 6),
    )
