"""From the words of a command line to a spec: what the commands that train have in common."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepbilevel_lab.data.table import ColumnsSpec
    from deepbilevel_lab.training.spec import RunSpec

_MOST_SEEDS = 1_000
_ABOUT_LABELS = ("method", "loss", "mixing", "audit")  # whoever names one of these decides on all


@dataclass(frozen=True)
class Resolved:
    """The run that is meant.

    Attributes:
        spec: the run.
        reasons: why settings are what they are that nobody gave, for images of one's own.
        notes: what a person should know before it begins.
    """

    spec: "RunSpec"
    reasons: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


def resolve(
    data: str | None,
    data_dir: Path,
    network: str | None,
    spec_file: Path | None,
    given: dict[str, Any],
    settings: list[str],
    *,
    text: str | None = None,
    columns: "ColumnsSpec | None" = None,
    plain: bool = False,
    prepare: "Callable[[RunSpec], RunSpec]" = lambda spec: spec,
) -> Resolved:
    """Return the run that is meant: what is usual, then the options that were given, then what ``--set`` says.

    Args:
        data: what ``--data`` says.
        data_dir: where data sets stand.
        network: what ``--network`` says.
        spec_file: what ``--spec`` says.
        given: options by the dotted keys of their fields; None where one was not given.
        settings: what ``--set`` says.
        text: the spec itself, if it was sent.
        columns: what ``--target``, ``--text`` and ``--ignore`` say of a table.
        plain: leave out what meets wrong labels by default: the command compares such methods, or none must be there.
        prepare: what the command changes in every run; images of one's own are counted after it.
    """
    from deepbilevel_lab.networks.named_code import check_named, name_code, needs_naming
    from deepbilevel_lab.training.defaults import explained_default
    from deepbilevel_lab.training.own_data import fit_groups, space_evaluations, without_remedy
    from deepbilevel_lab.training.own_rules import name_rule

    for key, value in (*given.items(), *split_settings(settings)):
        if key in ("method", "method.kind"):
            name_rule(value)
    if spec_file is not None:
        spec = None if data is not None or columns is not None else _read_spec(spec_file, text)
        if spec is None or (network is not None and not needs_naming(spec.network.name)):
            raise ValueError("--spec already says which data and network; change them in the file, or with --set")
        if network is not None:
            name_code(network)
        spec = prepare(change_spec(spec, given, settings))
        if needs_naming(spec.network.name):
            check_named(spec.network.name, spec.network.code)
        if text is not None:  # whoever sent it has taken the fingerprint, and is told if it fits no more
            return Resolved(spec)
        spec, changed = _with_content(spec)
        return Resolved(spec, notes=changed)
    if data is None:
        raise ValueError("--data is missing; `deepbilevel data list` shows what there is, digits need no download")
    if columns is not None:
        kind, path, parts, notes = "table", _find_table(data, data_dir), {}, []
    else:
        kind, path, parts, notes = _own_images(data, data_dir)
    spec, reasons = explained_default(kind, network, path=path, columns=columns)
    given = {**parts, **{key: value for key, value in given.items() if value is not None}}
    keys = {*given, *(key for key, _ in split_settings(settings))}
    if spec.data.entry.own and (plain or any(key.partition(".")[0] in _ABOUT_LABELS for key in keys)):
        spec, reasons = without_remedy(spec, reasons, averaging=not plain)
    spec = prepare(change_spec(spec, given, settings))
    reasons = {key: reason for key, reason in reasons.items() if key not in keys}
    if spec.data.entry.own and spec.data.entry.holds == "images" and "evaluate_every" not in keys:
        spec = space_evaluations(spec)
        reasons["evaluate_every"] = "an evaluation takes about as long as an epoch of training"
    if spec.data.entry.own:
        spec, reasons["group"] = fit_groups(spec, data_dir, fixed=keys)
    spec, changed = _with_content(spec)
    return Resolved(spec, [f"{key}: {reason}" for key, reason in reasons.items()], [*notes, *changed])


def _read_spec(spec_file: Path, text: str | None) -> "RunSpec":
    from deepbilevel_lab.specs import from_plain
    from deepbilevel_lab.training.spec import RunSpec
    from deepbilevel_lab.training.spec_files import load_spec

    if str(spec_file) != "-":
        return load_spec(spec_file)
    return from_plain(RunSpec, json.loads(text) if text is not None else json.load(sys.stdin))


def _find_table(data: str, data_dir: Path) -> str:
    from deepbilevel_lab.data.table import TABLE_SUFFIXES

    if data == "table":
        return str(data_dir)
    if Path(data).suffix not in TABLE_SUFFIXES:
        raise ValueError(f"--target is the column of a table, and {data} is none; give a .csv or .parquet file")
    return data


def _own_images(data: str, data_dir: Path) -> tuple[str, str, dict[str, Any], list[str]]:
    """Return the name in the catalog and the place, also where somebody named the place itself.

    Then, of a folder with a part to train on and one to test on, the latter as a setting, and what to say about it.
    """
    from deepbilevel_lab.data import DATA_SETS
    from deepbilevel_lab.data.image_files import find_parts

    if data == "table" or Path(data).suffix == ".parquet":
        raise ValueError(f"{data} is a table; name the column to predict: --target")
    if data not in DATA_SETS and Path(data).suffix == ".csv" and not Path(data).is_dir():
        return "csv", data, {}, []
    is_place = data not in DATA_SETS and Path(data).is_dir()
    if not is_place and data != "folder":
        return data, str(data_dir), {}, []
    place = data if is_place else str(data_dir)
    parts = find_parts(Path(place))
    if parts is None:
        return "folder", place, {}, []
    note = f"{parts.train} is trained on, {parts.test} tested on"
    if parts.untouched is not None:
        note += f"; {parts.untouched} is left alone: deepbilevel evaluate RUN --data {parts.untouched}"
    return "folder", str(parts.train), {"data.test_path": str(parts.test)}, [note]


def change_spec(spec: "RunSpec", given: dict[str, Any], settings: list[str]) -> "RunSpec":
    """Return the spec with the options that were given, and then with what ``--set`` says."""
    from deepbilevel_lab.specs import with_value

    for key, value in given.items():
        if value is not None:
            spec = with_value(spec, key, value)
    for key, value in split_settings(settings):
        spec = with_value(spec, key, value)
    return spec


def tell_notes(notes: list[str]) -> None:
    """Say what a person should know; beside the output, which a program may read."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def _with_content(spec: "RunSpec") -> tuple["RunSpec", list[str]]:
    """Return the spec with the fingerprint of one's own data as it is now, and a note if it was one of other data."""
    found = spec.data.take_content()
    notes: list[str] = []
    if spec.data.content not in (None, found):
        notes.append(f"{spec.data.path or spec.data.labels} has changed since this spec was written")
    return replace(spec, data=replace(spec.data, content=found)), notes


def split_settings(settings: list[str]) -> list[tuple[str, str]]:
    """Return what ``--set`` was given as keys and values.

    >>> split_settings(["optimizer.lr = 0.1"])
    [('optimizer.lr', '0.1')]
    """
    pairs: list[tuple[str, str]] = []
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"--set needs key=value, as in optimizer.lr=0.1, got {setting!r}")
        pairs.append((key.strip(), value.strip()))
    return pairs


def parse_seeds(seeds: str) -> list[int]:
    """Return the numbers of ``--seeds``, each once.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    numbers: dict[int, None] = {}
    for part in seeds.split(","):
        first, _, last = part.partition("-")
        try:
            low, high = int(first), int(last or first)
        except ValueError:
            low, high = 1, 0
        if low > high:
            raise ValueError(f"--seeds must be written as in 0-4 or 0,2,5, got {seeds!r}")
        if high - low < _MOST_SEEDS:
            numbers.update(dict.fromkeys(range(low, high + 1)))
        if high - low >= _MOST_SEEDS or len(numbers) > _MOST_SEEDS:
            raise ValueError(
                f"--seeds may name {_MOST_SEEDS:,} seeds at the most, got {seeds!r}; take several commands"
            )
    return list(numbers)
