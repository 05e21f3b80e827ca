"""``deepbilevel reproduce list``: the paper's experiments and what they cost on this machine."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from deepbilevel_paper import Experiment, Scale


def print_list(
    experiments: "list[Experiment]",
    scale: "Scale",
    num_seeds: int,
    fields: dict[str, Any],
    data_dir: Path,
    *,
    probe: bool | None,
    as_json: bool,
) -> None:
    """Print every experiment with what it costs at a scale.

    Args:
        experiments: in their order.
        scale: their size.
        num_seeds: how many runs every cell has.
        fields: of all runs, such as ``device``.
        data_dir: where data sets stand; those that do not are named.
        probe: measure this machine anew, or not at all; None measures what is not known yet.
        as_json: a line of JSON each, and not a table.
    """
    from rich.console import Console
    from rich.progress import track

    from deepbilevel_lab.cli.tables import print_table
    from deepbilevel_lab.training.memory import keep_freed_memory
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
        ["name", "what", "runs", "million\nvisits", "hours", "data\nmissing"],
        [
            [
                row["name"],
                row["title"],
                str(row["runs"]),
                f"{row['sample_visits'] / 1e6:,.2f}",
                "-" if row["hours"] is None else f"{row['hours']:,.1f}",
                ", ".join(row["missing_data"]) or "-",
            ]
            for row in listed
        ],
        caption=f"Scale {scale.name}: {scale.description}. {num_seeds} seed(s). Hours: one run after another on this "
        f"machine ({where}), from a few timed steps; decoding of files is not in them.",
        numbers=range(2, 5),
    )
