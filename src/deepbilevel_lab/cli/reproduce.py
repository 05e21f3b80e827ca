"""``deepbilevel reproduce``: the paper's tables and figures, each by one command."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepbilevel_lab.cli.messages import FAILED, INTERRUPTED, WRONG_USAGE, errors_as_messages
from deepbilevel_lab.cli.places import JOBS_HELP, ON_HELP, Place, read_place
from deepbilevel_lab.cli.resolving import parse_seeds
from deepbilevel_lab.records import SweepRecord, to_json

if TYPE_CHECKING:
    from deepbilevel_lab.sweeps.sweep import Cell, Sweep
    from deepbilevel_lab.sweeps.trials import Trial
    from deepbilevel_paper import Experiment, Scale

_LIST, _ALL = "list", "all"


def reproduce(
    experiment: Annotated[str, typer.Argument(help="A name from `deepbilevel reproduce list`; or list, or all.")],
    scale: Annotated[
        str, typer.Option(help="paper, compact (hours on two cores) or smoke (seconds per run, synthetic images).")
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
    threads: Annotated[int, typer.Option(min=1, help="Threads per run.")] = 1,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or mps; the fastest available by default.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Processes per run that decode image files; 0: none.")] = 0,
    data_dir: Annotated[
        Path, typer.Option(envvar="DEEPBILEVEL_DATA", help="The folder of data sets; smoke makes its own.")
    ] = Path("data"),
    out: Annotated[Path | None, typer.Option(help="The folder of runs and records; runs/SCALE by default.")] = None,
    probe: Annotated[
        bool | None,
        typer.Option(help="With list: measure this machine again, or not at all; once by default.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and stop.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the result only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per event.")] = False,
) -> None:
    """Run an experiment from the paper and show its numbers beside ours; rerun to resume.

    Example: deepbilevel reproduce table1 --column CifarNet --seeds 0-1 --jobs 2
    """
    from deepbilevel_lab.cli.reproduce_list import print_list
    from deepbilevel_lab.sweeps.sweep import refuse_to_lose
    from deepbilevel_lab.training.defaults import best_device
    from deepbilevel_paper import EXPERIMENTS, find_experiment, find_scale

    with errors_as_messages(WRONG_USAGE):
        place = read_place(on)
        size, numbers = find_scale(scale), parse_seeds(seeds)
        fields = {"threads": threads, "device": device or best_device()}
        out = out or Path("runs") / size.name
        if experiment in (_LIST, _ALL) and (rows or columns or at):
            raise ValueError(f"{experiment} is of whole experiments; --row, --column and --at choose parts of one")
        if experiment == _LIST:
            if dry_run:
                raise ValueError("list runs nothing; --dry-run belongs to an experiment, or to all")
            print_list(list(EXPERIMENTS.values()), size, len(numbers), fields, data_dir, probe=probe, as_json=as_json)
            return
        chosen = list(EXPERIMENTS.values()) if experiment == _ALL else [find_experiment(experiment)]
        plans = [_make_plan(each, size, numbers, fields, out, rows or [], columns or [], at) for each in chosen]
        if dry_run:
            for trial in (trial for plan in plans for trial in plan.trials):
                typer.echo(f"{trial.label}: {trial.spec.name}-{trial.id}")
            return
        for plan in plans:
            refuse_to_lose(plan.sweep.file(out, "json"), plan.sweep)
        data_dir, ready = _find_data(plans, size, data_dir, out)
    raise typer.Exit(_run(plans, ready, place, out, data_dir, jobs, workers, quiet=quiet, as_json=as_json))


@dataclass(frozen=True)
class _Plan:
    """What is run of an experiment: cells of its sweep, and their runs."""

    experiment: "Experiment"
    sweep: "Sweep"
    wanted: "list[Cell]"
    trials: "list[Trial]"


def _make_plan(
    experiment: "Experiment",
    scale: "Scale",
    seeds: list[int],
    fields: dict[str, Any],
    out: Path,
    rows: list[str],
    columns: list[str],
    at: str | None,
) -> _Plan:
    from deepbilevel_lab.sweeps.sweep import recorded_seeds
    from deepbilevel_paper.sweep import make_sweep

    sweep = make_sweep(experiment, scale, seeds, **fields)
    # The record is that of all seeds there have been, not only of those that are run today.
    recorded = recorded_seeds(sweep.file(out, "json"))
    sweep = make_sweep(experiment, scale, sorted({*seeds, *recorded}), **fields)
    wanted = _choose_cells(sweep, rows, columns, at)
    return _Plan(experiment, sweep, wanted, sweep.trials(wanted.__contains__, seeds))


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


def _find_data(plans: list[_Plan], scale: "Scale", data_dir: Path, out: Path) -> tuple[Path, list[_Plan]]:
    """Return the folder of the data, and the plans for which it is there; for one alone it must be.

    What is missing for the wanted cells is told with the way to get it.
    """
    from deepbilevel_paper.made_data import make_data
    from deepbilevel_paper.needed_data import missing_data

    if scale.made_data:
        made = out / "made-data"
        make_data(made, sorted({cell.spec.data.name for plan in plans for cell in plan.experiment.cells(scale)}))
        return made, plans
    ready: list[_Plan] = []
    for plan in plans:
        missing = missing_data((spec for cell in plan.wanted for spec in (*cell.before, *cell.specs)), data_dir)
        listed = "\n".join(f"  {each.name}: {each.remedy}" for each in missing)
        message = f"{plan.experiment.name} needs data that is not in {data_dir}:\n{listed}"
        if missing and len(plans) == 1:
            raise FileNotFoundError(message)
        if missing:
            typer.echo(f"left out: {message}", err=True)
        else:
            ready.append(plan)
    return data_dir, ready


def _run(
    plans: list[_Plan],
    ready: list[_Plan],
    place: Place,
    out: Path,
    data_dir: Path,
    jobs: int | None,
    workers: int,
    *,
    quiet: bool,
    as_json: bool,
) -> int:
    """Run those that are ready, one experiment after another, and return the exit code; all are recorded."""
    from deepbilevel_lab.cli.side_by_side import conclude, run_and_show
    from deepbilevel_lab.sweeps.sweep import Recorder
    from deepbilevel_lab.training.interruption import Interruption

    codes = [0 if len(ready) == len(plans) else FAILED]
    with errors_as_messages(), Interruption(), place.open(out, data_dir, workers=workers) as executor:
        # Cells that are not wanted today may have been run before, elsewhere too: then their exported records are here.
        recorders = {plan.sweep.name: Recorder(plan.sweep, out, find_record=executor.find_record) for plan in plans}
        for recorder in recorders.values():
            recorder.changed([])  # what is not reached today is missing in the record, and not in silence
        for plan in ready:
            recorder, number = recorders[plan.sweep.name], jobs or place.usual_jobs(len(plan.trials))
            outcomes = run_and_show(
                *(plan.trials, executor, number), quiet=quiet, as_json=as_json, also=recorder, records_suffice=True
            )
            _print_result(plan, recorder.record, recorder.path, as_json=as_json)
            codes.append(conclude(outcomes))
            if codes[-1] == INTERRUPTED:
                break
    return max(codes)


def _print_result(plan: _Plan, record: SweepRecord, path: Path, *, as_json: bool) -> None:
    from deepbilevel_lab.cli.tables import print_table
    from deepbilevel_lab.sweeps.table import describe_beside, list_doubts, make_table_beside

    if as_json:
        typer.echo(json.dumps({"event": "reproduced", "record": str(path), "cells": to_json(record.cells)}))
        return
    shown = {(cell.row, cell.column, cell.x) for cell in plan.wanted}
    cells = tuple(cell for cell in record.cells if (cell.row, cell.column, cell.x) in shown or not cell.runs)
    titles, rows = make_table_beside(replace(record, cells=cells))
    print_table(titles, rows, caption=describe_beside(record), numbers=range(1 + ("column" in titles), len(titles)))
    for doubt in list_doubts(record):
        typer.echo(f"note: {doubt}")
    typer.echo(f"record: {path}; a page of it all: deepbilevel report {path.parent}")
