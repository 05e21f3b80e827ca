"""What ``python -m benchmarks.cost`` has measured, as far as a report tells it; read as all records are.

``benchmarks/cost/measuring.py`` writes more than this, and by its own definitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    limit: float
    microseconds: Mapping[str, Range] = field(default_factory=dict[str, Range])


@dataclass(frozen=True)
class GrowthAxis:
    """What grows, and what was measured on the way."""

    axis: str
    points: tuple[GrowthPoint, ...]


@dataclass(frozen=True)
class Machine:
    """On what it was measured."""

    processor: str
    threads: int
    torch: str
    python: str

    def __str__(self) -> str:
        return f"{self.processor}, {self.threads} thread, torch {self.torch}, Python {self.python}"


@dataclass(frozen=True, kw_only=True)
class Costs:
    """A benchmark.

    Attributes:
        updates: contenders by setting.
        memory: peaks by setting and contender, in multiples of the model's size.
        growth: by axis.
    """

    machine: Machine
    updates: Mapping[str, tuple[Contender, ...]] = field(default_factory=dict[str, tuple[Contender, ...]])
    memory: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    growth: tuple[GrowthAxis, ...]
