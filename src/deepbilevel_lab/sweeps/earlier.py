"""What the record of a sweep held before, so that going on with a part of it takes nothing out."""

import json
from pathlib import Path
from typing import Any

from deepbilevel_lab.sweeps.sweep import FORMAT, Sweep


def recorded_seeds(file: Path) -> list[int]:
    """Return the seeds of the record that is there; none where there is none."""
    return list(_read(file).get("seeds", []))


def refuse_to_lose(file: Path, sweep: Sweep) -> None:
    """Raise an error if the record that is there has finished runs of which the sweep knows nothing.

    Such runs had other settings: other threads or another device, or a version for which the sweep was another one.
    """
    planned = {spec.id for cell in sweep.cells for spec in cell.specs}
    runs: list[dict[str, Any]] = [run for cell in _read(file).get("cells", []) for run in cell["runs"]]
    strange = [run["folder"] for run in runs if run["status"] == "done" and run["id"] not in planned]
    if strange:
        raise ValueError(
            f"{file} has {len(strange)} finished run(s) with other settings, such as {strange[0]}, and would lose them;"
            " use --threads and --device as they were then, another folder as --out, or move that file away (runs stay)"
        )


def _read(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # none, or a damaged one: it is written anew from the records of runs
    return record if isinstance(record, dict) and record.get("format") == FORMAT else {}
