"""Records without their runs: what was measured, small enough to share, and nothing about the machine's folders."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deepbilevel_lab.records import to_text
from deepbilevel_lab.regular_files import read_regular
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.training.folder import find_runs


def export_records(out: Path, to: Path, *, unfinished: bool = False) -> Sequence[Path]:
    """Write the records of finished runs, and those of sweeps, from a folder of runs to another; return the files.

    With ``unfinished``, runs that were interrupted or still go on are exported as far as they are. What is there of an
    earlier export is replaced, file by file; anything else is left alone.
    """
    if to.resolve() == out.resolve():
        raise ValueError(f"--to {to} is the folder of runs itself; name another, its records would lose what runs need")
    records = {folder.path.name: record for folder in find_runs(out) if (record := folder.read_record()) is not None}
    wanted = ("done", "interrupted", "running") if unfinished else ("done",)
    chosen = {name: record for name, record in records.items() if record.status in wanted}
    sweeps = sorted(out.glob("sweep-*.json"))
    if not chosen and not sweeps:
        raise ValueError(f"{out} holds no finished run and no sweep; give the --out of train, compare or reproduce")
    written: list[Path] = []
    for name, record in chosen.items():
        written.append(to / name / "record.json")
        _write(written[-1], to_text(replace(record, data_dir=None, process=None)))  # which are of this machine
    for sweep in sweeps:
        written.append(to / sweep.name)
        _write(written[-1], read_regular(sweep).decode("utf-8"))
    return written


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
