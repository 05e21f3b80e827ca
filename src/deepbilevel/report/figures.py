"""What a figure shows, as values: panels, series, points, curves and bands. Not how it is drawn."""

from dataclasses import dataclass

from deepbilevel.report.scales import Scale


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
        rows: for a dot plot the series of each line, from above; ``y`` of a dot is then the number of its line.
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
    rows: tuple[int, ...] = ()
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
