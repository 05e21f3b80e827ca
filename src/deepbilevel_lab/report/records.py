"""Everything under a folder: records of sweeps, runs and benchmarks, and the files that could not be read, and why.

A record is a stranger's text; what is in it, and how it is checked, is said in :mod:`deepbilevel_lab.records`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from deepbilevel_lab.records import RunRecord, SweepRecord, clean, read_file
from deepbilevel_lab.report.cost_records import Costs

_LONGEST_REASON = 400  # a damaged record may repeat itself for megabytes
_SET_ASIDE = ".old-"  # `train --no-resume` moves a run here

_T = TypeVar("_T")


@dataclass(frozen=True)
class Problem:
    """A file that was passed over."""

    path: str
    why: str


@dataclass(frozen=True)
class Records:
    """Everything under a folder."""

    sweeps: tuple[SweepRecord, ...]
    runs: Mapping[str, RunRecord]
    costs: tuple[Costs, ...]
    problems: tuple[Problem, ...]

    @property
    def loose(self) -> tuple[RunRecord, ...]:
        """The runs that belong to no sweep."""
        taken = {run.id for sweep in self.sweeps for cell in sweep.cells for run in cell.runs}
        return tuple(run for run in self.runs.values() if run.id not in taken)


def read_records(folder: Path) -> Records:
    """Read every record under ``folder``; what cannot be read is named in ``problems`` and stops nothing."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder} is not a folder; name one that holds sweep-*.json, record.json or bench*.json files"
        )
    problems: list[Problem] = []
    sweeps: list[SweepRecord] = []
    runs: dict[str, RunRecord] = {}
    for path in _files(folder, "sweep-*.json"):
        sweep = _try_to_read(path, folder, problems, SweepRecord)
        if sweep is not None:
            sweeps.append(sweep)
    for path in _files(folder, "record.json"):
        run = _try_to_read(path, folder, problems, RunRecord)
        if run is None:
            continue
        if run.id in runs:
            problems.append(Problem(_shown(path, folder), f"another file records the run {run.id}; the first is shown"))
        else:
            runs[run.id] = run
    found = [_try_to_read(path, folder, problems, Costs) for path in _files(folder, "bench*.json")]
    return Records(tuple(sweeps), runs, tuple(each for each in found if each is not None), tuple(problems))


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.rglob(pattern))
    return [path for path in found if not any(_SET_ASIDE in part for part in path.relative_to(folder).parts)]


def _shown(path: Path, folder: Path) -> str:
    return clean(path.relative_to(folder).as_posix())


def _try_to_read(path: Path, folder: Path, problems: list[Problem], kind: type[_T]) -> _T | None:
    try:
        return read_file(kind, path)
    except (OSError, ValueError) as error:
        problems.append(Problem(_shown(path, folder), clean(str(error))[:_LONGEST_REASON]))
        return None
