"""What ``python -m benchmarks.cost`` has measured, as values: what is read, what is refused, and why.

As all records, it is a stranger's text, and arrives here as checked numbers and printable strings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepbilevel_lab.report import fields


@dataclass(frozen=True)
class Range:
    """A median, and between which values the middle half lies."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Contender:
    """One update of a contender; all numbers are None if it failed, and ``failed`` says why."""

    name: str
    failed: str | None
    seconds: Range | None
    to_sgd: Range | None
    to_accumulation: Range | None


@dataclass(frozen=True)
class GrowthPoint:
    """The cost of an image in one setting, in microseconds, and the least it could be."""

    x: float
    setting: str
    microseconds: Mapping[str, Range]
    limit: float


@dataclass(frozen=True)
class GrowthAxis:
    """What grows, and what was measured on the way."""

    name: str
    points: tuple[GrowthPoint, ...]


@dataclass(frozen=True)
class Costs:
    """A benchmark.

    Attributes:
        machine: in words.
        updates: contenders by setting.
        memory: peaks by setting and contender, in multiples of the model's size.
        growth: by axis.
    """

    machine: str
    updates: Mapping[str, tuple[Contender, ...]]
    memory: Mapping[str, Mapping[str, float]]
    growth: tuple[GrowthAxis, ...]


def read_costs(record: Mapping[str, Any]) -> Costs:
    """Check a benchmark's record; an error names what is wrong with it."""
    machine = fields.optional_object(record, "machine") or {}
    updates = fields.optional_object(record, "updates") or {}
    memory = fields.optional_object(record, "memory") or {}
    return Costs(
        machine=f"{fields.text(machine, 'processor')}, {fields.whole(machine, 'threads')} thread, "
        f"torch {fields.text(machine, 'torch')}, Python {fields.text(machine, 'python')}",
        updates={fields.clean(name): tuple(map(_contender, fields.objects(updates, name))) for name in updates},
        memory={fields.clean(name): _numbers(fields.optional_object(memory, name) or {}) for name in memory},
        growth=tuple(map(_axis, fields.objects(record, "growth"))),
    )


def _contender(row: Mapping[str, Any]) -> Contender:
    return Contender(
        name=fields.text(row, "name"),
        failed=fields.optional_text(row, "failed"),
        seconds=_range(row, "seconds"),
        to_sgd=_range(row, "to_sgd"),
        to_accumulation=_range(row, "to_accumulation"),
    )


def _axis(axis: Mapping[str, Any]) -> GrowthAxis:
    return GrowthAxis(fields.text(axis, "axis"), tuple(map(_point, fields.objects(axis, "points"))))


def _point(point: Mapping[str, Any]) -> GrowthPoint:
    measured = fields.optional_object(point, "microseconds") or {}
    found = {fields.clean(name): _range(measured, name) for name in measured}
    return GrowthPoint(
        x=_needed(point, "x"),
        setting=fields.text(point, "setting"),
        microseconds={name: each for name, each in found.items() if each is not None},
        limit=_needed(point, "limit"),
    )


def _range(record: Mapping[str, Any], key: str) -> Range | None:
    found = fields.optional_object(record, key)
    return None if found is None else Range(*(_needed(found, name) for name in ("median", "low", "high")))


def _numbers(record: Mapping[str, Any]) -> dict[str, float]:
    return {fields.clean(name): _needed(record, name) for name in record}


def _needed(record: Mapping[str, Any], key: str) -> float:
    value = fields.number(record, key)
    if value is None:
        raise ValueError(f"{key} is {record.get(key)!r}; it must be a number")
    return value
