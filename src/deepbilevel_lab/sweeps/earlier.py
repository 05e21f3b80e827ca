"""What the record of a sweep held before, so that going on with a part of it takes nothing out."""

import json
from pathlib import Path

from deepbilevel_lab.records import FormatError, SweepRecord, read_file
from deepbilevel_lab.sweeps.sweep import Sweep


def recorded_seeds(file: Path) -> list[int]:
    """Return the seeds of the record that is there; none where there is none."""
    record = _read(file)
    return [] if record is None else list(record.seeds)


def refuse_to_lose(file: Path, sweep: Sweep) -> None:
    """Raise an error if the record that is there has finished runs of which the sweep knows nothing.

    Such runs had other settings: other threads or another device, or a version for which the sweep was another one.
    """
    planned = {spec.id for cell in sweep.cells for spec in cell.specs}
    record = _read(file)
    runs = [] if record is None else [run for cell in record.cells for run in cell.runs]
    strange = [run.folder or run.id for run in runs if run.status == "done" and run.id not in planned]
    if strange:
        raise ValueError(
            f"{file} has {len(strange)} finished run(s) with other settings, such as {strange[0]}, and would lose them;"
            " use --threads and --device as they were then, another folder as --out, or move that file away (runs stay)"
        )


def _read(file: Path) -> SweepRecord | None:
    try:
        return read_file(SweepRecord, file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, FormatError):
        return None  # none, or a damaged one: it is written anew from the records of runs
    except ValueError as error:
        raise ValueError(f"{file} is not what this version writes: {error}; move it away (runs stay)") from error
