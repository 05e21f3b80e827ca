"""What runs are called that were not planned together, so that a reader can tell them apart."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from deepbilevel_lab.records import RunRecord

_MOST_TOLD = 3


def names_apart(runs: Sequence[RunRecord]) -> list[str]:
    """Return the names of runs with different settings, each followed by what differs where several share it."""
    names = [", ".join([run.name, *_own_settings(run, runs)]) for run in runs]
    return [
        name if names.count(name) == 1 else f"{run.name} ({run.id[:6]})" for name, run in zip(names, runs, strict=True)
    ]


def _own_settings(run: RunRecord, runs: Sequence[RunRecord]) -> list[str]:
    """Return the settings in which a run differs from those of its name; nothing if they are too many to be read."""
    specs = {other.id: _flat(other.spec) for other in runs if other.name == run.name}
    own = specs[run.id]
    # A setting that another version of this package did not know says nothing about the difference.
    known = [key for key in own if all(key in spec for spec in specs.values()) and key != "seed"]
    differing = [key for key in known if len({spec[key] for spec in specs.values()}) > 1]
    return [_show(key, own[key]) for key in differing] if len(differing) <= _MOST_TOLD else []


def _flat(value: Mapping[str, object], start: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= _flat(cast("Mapping[str, object]", inner), f"{start}{key}.")
        else:
            flat[start + key] = json.dumps(inner)
    return flat


def _show(key: str, value: str) -> str:
    """Return a setting in words.

    >>> _show("data.limit", "5000"), _show("data.limit", "null"), _show("network.name", '"cifarnet"')
    ('limit 5000', 'no limit', 'name cifarnet')
    """
    name = key.rpartition(".")[2].replace("_", " ")
    return f"no {name}" if value == "null" else f"{name} {value.strip(chr(34))}"
