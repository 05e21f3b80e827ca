"""Records without their runs: what was measured, small enough to share, and nothing about the machine's folders."""

import json
from collections.abc import Sequence
from pathlib import Path

from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.training.folder import RunFolder, find_runs

_OF_THIS_MACHINE = ("data_dir", "process")


def export_records(out: Path, to: Path) -> Sequence[Path]:
    """Write the records of finished runs, and those of sweeps, from a folder of runs to another; return the files.

    What is there of an earlier export is replaced, file by file; anything else is left alone.
    """
    if to.resolve() == out.resolve():
        raise ValueError(f"--to {to} is the folder of runs itself; name another, its records would lose what runs need")
    finished = [folder for folder in find_runs(out) if _is_done(folder)]
    sweeps = sorted(out.glob("sweep-*.json"))
    if not finished and not sweeps:
        raise ValueError(f"{out} holds no finished run and no sweep; give the --out of train, compare or reproduce")
    written: list[Path] = []
    for folder in finished:
        record = folder.read_record() or {}
        for name in _OF_THIS_MACHINE:
            record.pop(name, None)
        written.append(to / folder.path.name / "record.json")
        _write(written[-1], json.dumps(record, indent=1) + "\n")
    for sweep in sweeps:
        written.append(to / sweep.name)
        _write(written[-1], sweep.read_text(encoding="utf-8"))
    return written


def _is_done(folder: RunFolder) -> bool:
    return (folder.read_record() or {}).get("status") == "done"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
