"""``deepbilevel runs``: what was trained, how it stands, and how runs compare."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deepbilevel_lab.cli.messages import WRONG_USAGE, errors_as_messages
from deepbilevel_lab.records import Row, clean, show_figure, to_json

if TYPE_CHECKING:
    from rich.table import Table

    from deepbilevel_lab.training.comparison import RunEntry, Summary

runs = typer.Typer(help="List, show and compare runs.", no_args_is_help=True)

OutOption = Annotated[Path, typer.Option(help="The folder of runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_MOST_ROWS = 30
_HISTORY = ("epoch", "lr", "loss", "negative_share", "train", "train_clean", "test", "gap")


@runs.command("list")
def list_runs(out: OutOption = Path("runs"), as_json: JsonOption = False) -> None:
    """List all runs under a folder with their status.

    Example: deepbilevel runs list --out runs
    """
    from rich.console import Console
    from rich.markup import escape

    from deepbilevel_lab.training.comparison import read_entries

    with errors_as_messages():
        if not out.is_dir():
            raise FileNotFoundError(f"--out {out} is not a folder; `deepbilevel train` makes it, or choose another")
        entries = read_entries(out)
    if as_json:
        typer.echo(json.dumps([_brief(entry) for entry in entries]))
        return
    table = _table("name", "id", "status", "epoch", "last", "best", "date", numbers=slice(3, 6))
    table.caption = "last and best: test results in percent"
    for entry in entries:
        brief = _brief(entry)
        epoch = f"{brief['epoch']}/{brief['epochs']}" if entry.found else ""
        figures = [_short(brief[name]) for name in ("test", "best")]
        name, run_id = escape(clean(entry.name)), escape(clean(entry.id))
        table.add_row(name, run_id, entry.status, epoch, *figures, entry.changed.strftime("%m-%d %H:%M"))
    Console().print(table if entries else escape(clean(f"no runs in {out}")))
    for entry in entries:
        if entry.status == "damaged":
            typer.echo(clean(f"damaged: {entry.error}"), err=True)


@runs.command()
def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run, or a prefix of its id.")],
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Show everything about one run, and how to resume it if it is unfinished.

    Example: deepbilevel runs show 5d92f0
    """
    from deepbilevel_lab.training.comparison import find_run, read_entry

    with errors_as_messages():
        entry = read_entry(find_run(run, out))
        if entry.status == "damaged":
            raise ValueError(entry.error)
    if as_json:
        typer.echo(json.dumps({**to_json(entry.record), "status": entry.status, "folder": str(entry.folder.path)}))
    else:
        _print_run(entry)


@runs.command()
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Folders or id prefixes; all runs under --out by default."),
    ] = None,
    out: OutOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Compare runs: the settings that differ, the results, and their spread over seeds.

    Example: deepbilevel runs compare 5d92f0 0c1b7e
    """
    from deepbilevel_lab.training.comparison import (
        differing_settings,
        find_run,
        flatten,
        is_set_aside,
        read_entries,
        read_entry,
        summarize_seeds,
    )

    with errors_as_messages():
        if names:
            entries = [read_entry(find_run(name, out)) for name in names]
        else:
            entries = [entry for entry in read_entries(out) if not is_set_aside(entry)]
        sound = [entry for entry in entries if entry.status != "damaged"]
        for entry in entries:
            if entry.status == "damaged":
                typer.echo(clean(f"left out: {entry.error}"), err=True)
        if not sound:
            raise ValueError(f"there is no sound run to compare in {', '.join(names) if names else out}; choose others")
    keys = differing_settings(sound)
    rows = [
        {"id": entry.id, "name": entry.name, "status": entry.status, "metric": entry.record.metric}
        | {"settings": {key: flatten(entry.record.spec).get(key) for key in keys}, **_figures(entry)}
        for entry in sound
    ]
    summaries = [asdict(summary) for summary in summarize_seeds(sound)]
    if as_json:
        typer.echo(json.dumps({"differing": keys, "runs": rows, "over_seeds": summaries}))
    else:
        _print_comparison(sound, keys, rows)
        _print_summaries([key for key in keys if key != "seed"], summarize_seeds(sound), _shown_figures(sound))


@runs.command()
def export(
    to: Annotated[Path, typer.Argument(help="The folder to write to.")],
    out: OutOption = Path("runs"),
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Include unfinished runs.")] = False,
) -> None:
    """Copy the records of finished runs and sweeps, without paths of this machine.

    Example: deepbilevel runs export results/mine --out runs
    """
    from deepbilevel_lab.training.export import export_records

    with errors_as_messages(WRONG_USAGE):
        written = export_records(out, to, unfinished=unfinished)
    typer.echo(f"{len(written)} records are in {to}; look at them with: deepbilevel report {to}")


def _brief(entry: "RunEntry") -> dict[str, Any]:
    brief: dict[str, Any] = {
        "name": entry.name,
        "id": entry.id,
        "folder": str(entry.folder.path),
        "status": entry.status,
        "date": entry.changed.isoformat(timespec="seconds"),
        "error": entry.error,
    }
    if entry.found is None:
        return {**brief, **dict.fromkeys(("epoch", "epochs", "test", "best"))}
    figures = entry.record.figures
    brief |= {"epoch": entry.epochs_done, "epochs": entry.record.epochs}
    return {**brief, "test": figures["test"], "best": figures["best"]}


def _figures(entry: "RunEntry") -> dict[str, float | None]:
    from deepbilevel_lab.training.comparison import FIGURES

    return {name: entry.record.figures[name] for name in FIGURES}


def _print_run(entry: "RunEntry") -> None:
    from rich.console import Console
    from rich.markup import escape

    from deepbilevel_lab.training.comparison import flatten

    console, record = Console(), entry.record
    final, best = record.final, record.best
    lines = [
        f"{entry.name}  {entry.id}",
        f"folder {entry.folder.path}, written {entry.changed:%Y-%m-%d %H:%M}",
        f"status {entry.status}, epoch {entry.epochs_done} of {record.epochs}, {_count(record.steps)} steps",
        f"{_count(record.images.train)} training and {_count(record.images.test)} test samples, "
        f"{_count(record.parameters)} parameters",
    ]
    if final is not None and best is not None:
        # See _shown_figures.
        on_clean = f", gap {show_figure(final.gap)}"
        if final.train_clean is not None:
            on_clean = f" ({final.train_clean:.2f} on clean labels)"
        lines.append(
            f"test {record.metric} {show_figure(final.test)} % last, {show_figure(best.test)} % best "
            f"(epoch {best.epoch}, chosen by looking at it); train {show_figure(final.train)} %{on_clean}"
        )
    taken = {"wall": record.seconds.wall, "cpu": record.seconds.cpu, "training": record.seconds.training}
    seconds = ", ".join(f"{name} {value:,.1f}" for name, value in taken.items() if value is not None)
    lines.append(f"seconds: {seconds}; {_short(record.samples_per_second)} samples a second while training")
    for line in lines:
        console.print(clean(line), highlight=False, markup=False, soft_wrap=True)
    settings = _table("setting", "value")
    for key, value in flatten(record.spec).items():
        settings.add_row(escape(key), escape(_setting(value)))
    console.print(settings)
    _print_history(record.history)
    surroundings = _table("ran on", "")
    for key, value in flatten({**to_json(record.environment), "data_dir": record.data_dir}).items():
        surroundings.add_row(escape(key), escape(_setting(value)))
    console.print(surroundings)
    for line in _how_to_go_on(entry):
        console.print(clean(line), highlight=False, markup=False, soft_wrap=True)


def _print_history(history: Sequence[Row]) -> None:
    from rich.console import Console

    if not history:
        return
    # Most methods have no negative weights, and a column of zeros says nothing.
    empty = {"negative_share": (None, 0.0)}
    names = [name for name in _HISTORY if any(row.figure(name) not in empty.get(name, (None,)) for row in history)]
    if "train_clean" in names and "gap" in names:
        names.remove("gap")  # see _shown_figures
    table = _table(*(name.replace("_", " ") for name in names), numbers=slice(0, None))
    every = -(-len(history) // _MOST_ROWS)
    # Counted from the end: the last epoch is always among them.
    for row in history[(len(history) - 1) % every :: every]:
        table.add_row(*(str(row.epoch) if name == "epoch" else _short(row.figure(name), 4) for name in names))
    if every > 1:
        table.caption = f"every {every} epochs of {len(history)}; --json shows all"
    Console().print(table)


def _how_to_go_on(entry: "RunEntry") -> list[str]:
    import shlex

    path = entry.folder.path
    if entry.status == "done" and not entry.folder.model_file.is_file():
        return ["its network is not here: exports hold records alone"]
    if entry.status == "done":
        return [f"to use it: {shlex.join(['deepbilevel', 'predict', str(path), 'photo.jpg'])}"]
    if entry.status == "running":
        return [f"process {entry.record.process} is training here"]
    lines = [f"error: {entry.error}"] if entry.error else []
    command = ["deepbilevel", "train", "--spec", str(entry.folder.spec_file), "--out", str(path.parent)]
    if entry.record.data_dir is not None:
        command += ["--data-dir", entry.record.data_dir]
    return [*lines, f"to resume from its last checkpoint: {shlex.join(command)}"]


def _print_comparison(entries: "list[RunEntry]", keys: list[str], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape

    extra = [name for name in ("status", "metric") if len({row[name] for row in rows} | {_usual(name, rows)}) > 1]
    first = len(keys) + 1 + len(extra)
    figures = _shown_figures(entries)
    table = _table("id", *map(_setting_title, keys), *extra, *map(_title, figures), numbers=slice(first, None))
    for entry, row in zip(entries, rows, strict=True):
        settings = [escape(_setting(row["settings"][key])) for key in keys]
        other = [escape(row[name]) for name in extra]
        table.add_row(escape(entry.id), *settings, *other, *(_short(row[name]) for name in figures))
    table.caption = "in percent; best was chosen by looking at the test samples"
    Console().print(table)
    if not keys and len(rows) > 1:
        typer.echo("these runs do not differ in any setting", err=True)


def _shown_figures(entries: "list[RunEntry]") -> list[str]:
    """Return what to show: of wrong labels the gap mixes what was memorised with what was learned, and says nothing."""
    from deepbilevel_lab.training.comparison import FIGURES

    is_noisy = any(entry.record.final is not None and entry.record.final.train_clean is not None for entry in entries)
    return [name for name in FIGURES if name != "gap" or not is_noisy]


def _print_summaries(keys: list[str], summaries: "list[Summary]", figures: list[str]) -> None:
    from rich.console import Console
    from rich.markup import escape

    if all(len(summary.seeds) == 1 for summary in summaries):
        return  # the table above has said it all
    table = _table(*map(_setting_title, keys), "seeds", *map(_title, figures), numbers=slice(len(keys) + 1, None))
    for summary in summaries:
        count = len(summary.seeds)
        settings = [escape(_setting(summary.settings[key])) for key in keys]
        seeds = "one seed" if count == 1 else f"n = {count}"
        table.add_row(*settings, seeds, *(str(summary.figures[name]) for name in figures))
    table.caption = "finished runs, mean ± standard deviation over seeds"
    Console().print(table)


def _table(*columns: str, numbers: slice | None = None) -> "Table":
    from rich.table import Table

    table = Table(*columns, caption_justify="left")
    for column in table.columns:
        # Names may take several lines; a number or an id that is cut off is of no use.
        column.overflow = "fold"
        column.no_wrap = column.header in {"id", "date", "last", "best", "epoch"}
    for column in table.columns[numbers] if numbers is not None else []:
        column.justify = "right"
    return table


def _setting_title(key: str) -> str:
    from rich.markup import escape

    return escape(key.removesuffix(".kind"))


def _title(figure: str) -> str:
    return {"test": "test, last", "best": "test, best"}.get(figure, figure)


def _usual(name: str, rows: list[dict[str, Any]]) -> str:
    return "done" if name == "status" else rows[0][name]


def _setting(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _short(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
