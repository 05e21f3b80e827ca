"""Records of runs side by side: how each stands, in which settings they differ, and what seeds make of it.

This module reads records; it does not know what is printed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from deepbilevel.checks import choose
from deepbilevel_lab.records import MeanFigure, PlainSpec, RunRecord
from deepbilevel_lab.training.earlier_specs import upgraded_to_compare
from deepbilevel_lab.training.folder import RunFolder, find_runs

FIGURES = ("train", "test", "best", "gap", "seconds")
"""``test`` is that of the last epoch; ``best`` was chosen by looking at it."""
_SET_ASIDE = ".old-"


@dataclass(frozen=True)
class RunEntry:
    """How a run stands.

    Attributes:
        status: done, running, interrupted, failed; ``stopped`` if its process is gone; ``damaged`` with an ``error``.
        found: what :class:`RunFolder` reads, with its spec in today's form; None if it is damaged.
        changed: when the record was last written.
    """

    folder: RunFolder
    status: str
    found: RunRecord | None
    changed: datetime
    error: str | None = None

    @property
    def id(self) -> str:
        """The id of the run; the end of the folder's name if the record does not tell it."""
        name = self.folder.path.name.partition(_SET_ASIDE)[0]
        return self.found.id if self.found is not None else name.rpartition("-")[2]

    @property
    def name(self) -> str:
        """The name of the run, or of the folder."""
        moved = self.folder.path.name.partition(_SET_ASIDE)
        return (moved[0] if self.found is None else self.found.name) + (f" (old-{moved[2]})" if moved[1] else "")

    @property
    def record(self) -> RunRecord:
        """The record of an entry that is not damaged."""
        assert self.found is not None, self.error
        return self.found

    @property
    def epochs_done(self) -> int:
        """How many epochs are in the history."""
        return self.record.history[-1].epoch if self.record.history else 0


@dataclass(frozen=True)
class Summary:
    """Finished runs that differ in nothing but the seed."""

    settings: dict[str, Any]
    seeds: list[int]
    figures: dict[str, MeanFigure]


def read_entry(folder: RunFolder) -> RunEntry:
    """Return how a run stands; a record that cannot be read makes a damaged entry, not an error."""
    try:
        changed = datetime.fromtimestamp(folder.record_file.stat().st_mtime, tz=timezone.utc).astimezone()
    except OSError:
        changed = datetime.fromtimestamp(0, tz=timezone.utc)
    try:
        record = folder.read_record()
        if record is None:
            raise FileNotFoundError(f"{folder.record_file} does not exist; is {folder.path} the folder of a run?")
        record = replace(record, spec=upgraded_to_compare(record.spec))
    except (ValueError, OSError) as error:
        return RunEntry(folder, "damaged", None, changed, str(error))
    if record.status == "running" and not folder.in_use():
        return RunEntry(folder, "stopped", record, changed)
    return RunEntry(folder, record.status, record, changed, record.error)


def read_entries(out: Path) -> list[RunEntry]:
    """Return all runs under a folder, by name."""
    return [read_entry(folder) for folder in find_runs(out)]


def find_run(given: str, out: Path) -> RunFolder:
    """Return the run meant: its folder, a file in it, or the start of its id under ``out``."""
    path = Path(given)
    if path.is_dir():
        return RunFolder(path)
    if path.is_file():
        return RunFolder(path.parent)
    ids = {entry.id: entry.folder for entry in read_entries(out) if not is_set_aside(entry)}
    matching = sorted(each for each in ids if each.startswith(given))
    if len(matching) > 1:
        raise ValueError(f"run {given!r} may be {' or '.join(matching)}; give more of the id")
    if not ids:
        raise ValueError(f"run {given!r} is no folder, and there are no runs in {out}; choose another --out")
    return ids[matching[0] if matching else choose(f"run in {out}", given, ids)]


def is_set_aside(entry: RunEntry) -> bool:
    """Whether the run was moved aside for a new one."""
    return _SET_ASIDE in entry.folder.path.name


def flatten(plain: PlainSpec, prefix: str = "") -> dict[str, Any]:
    """Return nested settings under dotted keys.

    >>> flatten({"data": {"name": "digits"}, "seed": 0})
    {'data.name': 'digits', 'seed': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(cast(Mapping[str, Any], value), f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def differing_settings(entries: Sequence[RunEntry]) -> list[str]:
    """Return the dotted keys of the settings in which runs differ, in the order of specs.

    Where runs differ in the kind of something, what only one of the kinds has follows from it and is left out.
    """
    flat = [flatten(entry.record.spec) for entry in entries]
    keys = dict.fromkeys(key for each in flat for key in each)
    kinds = {key.removesuffix("kind") for key in keys if key.endswith(".kind") and len(_values(flat, key)) > 1}
    return [
        key
        for key in keys
        if len(_values(flat, key)) > 1
        or (any(key not in each for each in flat) and not any(key.startswith(prefix) for prefix in kinds))
    ]


def summarize_seeds(entries: Sequence[RunEntry]) -> list[Summary]:
    """Return a summary of every setting of which runs are finished, in the order in which they come."""
    groups: dict[str, list[RunEntry]] = {}
    for entry in entries:
        if entry.status == "done":
            groups.setdefault(entry.record.settings, []).append(entry)
    keys = [key for key in differing_settings(entries) if key != "seed"]
    summaries: list[Summary] = []
    for group in groups.values():
        # The same run may be given twice, or lie in two folders; it is one measurement.
        own = sorted({entry.id: entry for entry in group}.values(), key=lambda entry: entry.record.seed)
        flat = flatten(own[0].record.spec)
        figures = {name: MeanFigure.of(entry.record.figures[name] for entry in own) for name in FIGURES}
        seeds = [entry.record.seed for entry in own]
        summaries.append(Summary({key: flat.get(key) for key in keys}, seeds, figures))
    return summaries


def _values(flat: Sequence[Mapping[str, Any]], key: str) -> set[str]:
    return {json.dumps(each[key], sort_keys=True) for each in flat if key in each}
