"""From the words of a command line to a spec: what the commands that train have in common."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deepbilevel_lab.training.spec import RunSpec

_MOST_SEEDS = 1_000


def resolve_spec(
    data: str | None, data_dir: Path, network: str | None, spec_file: Path | None, *, text: str | None = None
) -> "RunSpec":
    """Return the run that is meant before anything is changed in it; ``text`` is the spec itself, if it was sent."""
    from deepbilevel_lab.specs import from_plain
    from deepbilevel_lab.training.defaults import default_spec
    from deepbilevel_lab.training.spec import RunSpec
    from deepbilevel_lab.training.spec_files import load_spec

    if spec_file is not None:
        if data is not None or network is not None:
            raise ValueError("--spec already says which data and network; change them in the file, or with --set")
        if str(spec_file) != "-":
            return load_spec(spec_file)
        return from_plain(RunSpec, json.loads(text) if text is not None else json.load(sys.stdin))
    if data is None:
        raise ValueError("--data is missing; `deepbilevel data list` shows what there is, digits need no download")
    kind, path = _own_images(data, data_dir)
    return default_spec(kind, network, path=path)


def _own_images(data: str, data_dir: Path) -> tuple[str, str]:
    """Return the name in the catalog and the place, also where somebody named the place itself."""
    from deepbilevel_lab.data import DATA_SETS

    if data not in DATA_SETS and Path(data).is_dir():
        return "folder", data
    if data not in DATA_SETS and Path(data).suffix == ".csv":
        return "csv", data
    return data, str(data_dir)


def change_spec(spec: "RunSpec", given: dict[str, Any], settings: list[str]) -> "RunSpec":
    """Return the spec with the options that were given, and then with what ``--set`` says."""
    from deepbilevel_lab.specs import with_value

    for key, value in given.items():
        if value is not None:
            spec = with_value(spec, key, value)
    for key, value in split_settings(settings):
        spec = with_value(spec, key, value)
    return spec


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
