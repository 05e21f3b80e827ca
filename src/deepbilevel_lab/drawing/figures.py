"""What a figure shows, as values: panels, series, points, curves and bands, and the scales they stand on.

This module knows arithmetic; it does not know how anything is drawn or what was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_NUM_TICKS = 5
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """A range of values and the ticks in it.

    ``places`` is None where values are drawn to scale; else the values that stand at equal distances, in their order.
    """

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    places: tuple[float, ...] | None = None

    def share(self, value: float) -> float:
        """Return where a value stands: 0 is the lower end, 1 the upper one."""
        if self.places is not None:
            value = float(self.places.index(value))
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Dot:
    """A point with its spread; ``tip`` says everything about it. Looks: full, hollow, or the paper's cross."""

    series: int
    x: float
    y: float
    look: str
    tip: str
    x_deviation: float | None = None
    y_deviation: float | None = None


@dataclass(frozen=True)
class Curve:
    """A line; with a ``label`` its points can be read one by one."""

    series: int
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    seed: int | None = None
    label: str | None = None


@dataclass(frozen=True)
class Band:
    """An area between two lines; ``look`` is wide or narrow."""

    series: int
    xs: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    seed: int | None
    look: str


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        key: what the controls call it: a metric.
        series: the only series it is about, if there is only one.
        rows: for a dot plot the series of each line, from above, or None where all have dots; ``y`` of a dot is then
            the number of its line.
        row_labels: what is written at these lines.
    """

    key: str
    title: str
    x_label: str
    x: Scale
    y: Scale | None
    dots: tuple[Dot, ...] = ()
    curves: tuple[Curve, ...] = ()
    bands: tuple[Band, ...] = ()
    series: int | None = None
    rows: tuple[int | None, ...] = ()
    row_labels: tuple[str, ...] = ()
    y_unit: str = "%"

    @property
    def marks(self) -> tuple[Dot | Curve, ...]:
        """Everything that can be pointed at."""
        return (*self.dots, *self.curves)


@dataclass(frozen=True)
class Figure:
    """Panels that share their series; without panels ``about`` says why there is nothing to draw.

    Attributes:
        slug: the name of its files.
        keys: looks of dots that need a word of explanation, each with it.
        shown: the series that are drawn unless the reader chooses otherwise.
        series_word: what the series are.
        lined: whether series are lines, or dots only.
    """

    slug: str
    title: str
    about: str
    series: tuple[str, ...]
    panels: tuple[Panel, ...]
    keys: tuple[tuple[str, str], ...] = ()
    shown: frozenset[int] = frozenset()
    lined: bool = True
    seeds: tuple[int, ...] = ()
    series_word: str = "Methods"


def linear(values: Sequence[float], *, within: tuple[float, float] | None = None) -> Scale:
    """Return a scale that holds all values, with round ticks.

    >>> [label for _, label in linear([12.0, 47.0]).ticks]
    ['10', '20', '30', '40', '50']
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    nearly_equal = high - low <= max(abs(low), abs(high)) * 1e-4
    room = max(abs(high) * 0.1, 1e-6) if nearly_equal else (high - low) * 0.04
    low, high = low - room, high + room
    if within is not None:
        low, high = max(low, within[0]), min(high, within[1])
    step = _round_step((high - low) / _NUM_TICKS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = [round(number * step, 12) + 0.0 for number in range(first, last + 1)]
    return Scale(ticks[0], ticks[-1], tuple((tick, f"{tick:g}") for tick in ticks))


def along(values: Sequence[float]) -> Scale:
    """Return a scale for time, which ends where the values end; its ticks are whole numbers.

    >>> [label for _, label in along([1.0, 20.0]).ticks]
    ['5', '10', '15', '20']
    """
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if low == high:
        low, high = low - 1.0, high + 1.0
    step = max(1.0, _round_step((high - low) / 5))
    step = math.ceil(step)  # 2.5 epochs are no epoch
    ticks = range(math.ceil(low / step), math.floor(high / step) + 1)
    return Scale(low, high, tuple((float(tick * step), f"{tick * step:g}") for tick in ticks))


def over_values(values: Sequence[float]) -> Scale:
    """Return a scale for the few values of an experiment: to scale, or evenly spaced where they would crowd.

    >>> over_values([0.0, 20.0, 40.0, 90.0]).places is None
    True
    >>> over_values([0.001, 0.01, 0.1, 1.0]).places
    (0.001, 0.01, 0.1, 1.0)
    >>> [label for _, label in over_values([0.073882, 4.6194, 50000.0]).ticks]
    ['0.0739', '4.62', '50000']
    """
    places = sorted(set(values)) or [0.0]
    labels = tuple((value, f"{value:.3g}" if abs(value) < 100 else f"{value:g}") for value in places)
    gaps = [after - before for before, after in pairwise(places)]
    if gaps and min(gaps) * 16 >= places[-1] - places[0]:
        room = (places[-1] - places[0]) * 0.04
        return Scale(places[0] - room, places[-1] + room, labels)
    return Scale(-0.3, len(places) - 0.7, labels, tuple(places))


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))
