"""The record of a sweep: the places of a table or a figure, how each of their runs stands, and what is printed there.

It holds status and figures of every run and says of runs that are not there that they are not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import mean, stdev
from typing import Any, Literal

from deepbilevel_lab.records.json_values import FORMAT
from deepbilevel_lab.records.runs import Environment, PlainSpec, Status, show_figure


def show_number(value: float) -> str:
    """Write a number of an axis without needless digits.

    >>> show_number(50.0), show_number(0.001)
    ('50', '0.001')
    """
    return f"{value:.6g}"


@dataclass(frozen=True)
class MeanFigure:
    """A mean over seeds and its standard deviation, None for one seed.

    >>> print(MeanFigure.of([47.0, None, 48.0, 49.0]), MeanFigure.of([47.0]), MeanFigure.of([]))
    48.00 ± 1.00 47.00 -
    """

    mean: float | None
    spread: float | None

    @classmethod
    def of(cls, measured: Iterable[float | None]) -> "MeanFigure":
        """Return the mean of what was measured; None stands for runs without a value."""
        values = [value for value in measured if value is not None]
        return cls(mean(values) if values else None, stdev(values) if len(values) > 1 else None)

    def __str__(self) -> str:
        return show_figure(self.mean) + ("" if self.spread is None else f" ± {self.spread:.2f}")


@dataclass(frozen=True)
class Published:
    """Numbers somebody else printed for a cell, None where there are none; and what is to be said about them."""

    train: float | None
    test: float | None
    gap: float | None
    note: str | None

    def value(self, metric: str) -> float | None:
        """Return the number for a metric by its name in our records."""
        return {"train": self.train, "test": self.test, "gap": self.gap}.get(metric)


@dataclass(frozen=True)
class CellRun:
    """One seed of a cell.

    Attributes:
        figures: by the names in ``FIGURES``; None if there are none yet.
        folder: the name of the run's folder.
        images_seen: in all steps, repeated ones too.
    """

    seed: int
    id: str | None
    status: Status
    error: str | None
    figures: Mapping[str, float | None] | None
    folder: str | None = None
    images_seen: int | None = None

    def figure(self, name: str) -> float | None:
        """Return a figure, None where there is none."""
        return (self.figures or {}).get(name)


@dataclass(frozen=True)
class Cell:
    """A table entry or a point of a figure.

    Attributes:
        row: usually the method.
        column: what it is tried on.
        x: the varied quantity, in a figure.
        settings: what makes this cell differ from the others, for people.
        summary: every figure over the finished runs, None where there is none.
    """

    row: str
    column: str = ""
    x: float | None = None
    published: Published | None = None
    runs: tuple[CellRun, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    summary: Mapping[str, MeanFigure | None] = field(default_factory=dict[str, MeanFigure | None])


@dataclass(frozen=True)
class Axis:
    """What a figure varies."""

    name: str
    unit: str = ""

    @property
    def label(self) -> str:
        """The name with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def at(self, value: float) -> str:
        """Return a place on the axis in words.

        >>> Axis("label noise", "%").at(50.0)
        'label noise 50 %'
        """
        return f"{self.name} {show_number(value)}" + (f" {self.unit}" if self.unit else "")


@dataclass(frozen=True, kw_only=True)
class SweepRecord:
    """A table or figure with all its runs.

    Attributes:
        about: where it comes from, in a sentence or two.
        scale: how large, if there is a choice.
        reduced: how it is smaller than what was published.
        axis: None is a table.
        base: what all runs have in common, if anything.
    """

    format: int = FORMAT
    kind: Literal["comparison", "experiment"]
    id: str | None = None
    name: str
    title: str
    about: str = ""
    scale: str | None = None
    reduced: str | None = None
    axis: Axis | None = None
    updated: str = ""
    base: PlainSpec | None = None
    seeds: tuple[int, ...] = ()
    metric: str | None = None
    cells: tuple[Cell, ...]
    environment: Environment = field(default_factory=Environment)
