"""The demonstration as a picture: test accuracy per epoch, one line per method, its spread over seeds as a band."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from deepbilevel_lab.demo import training
from deepbilevel_lab.demo.summary import NAMES
from deepbilevel_lab.drawing.figures import Band, Curve, Figure, Panel, along, linear
from deepbilevel_lab.drawing.pictures import write_drawing
from deepbilevel_lab.drawing.svg import draw_figure

_DRAWN: tuple[training.Method, ...] = ("bilevel", "sgd", "uniform")  # the first series' line is unbroken


def draw_curves(curves: Sequence[training.Curve], setting: training.Setting, path: Path) -> None:
    """Write a PNG of the curves to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_drawing(draw_figure(_figure(curves, setting)), path)


def _figure(curves: Sequence[training.Curve], setting: training.Setting) -> Figure:
    epochs = tuple(float(epoch) for epoch in range(1, setting.epochs + 1))
    lines: list[Curve] = []
    bands: list[Band] = []
    for number, method in enumerate(_DRAWN):
        by_epoch = list(zip(*(curve.test for curve in curves if curve.method == method), strict=True))
        lines.append(Curve(number, epochs, tuple(map(mean, by_epoch)), label=NAMES[method]))
        bands.append(Band(number, epochs, tuple(map(min, by_epoch)), tuple(map(max, by_epoch)), None, "range"))
    panel = Panel(
        key="test",
        title="Test accuracy, clean labels (%)",
        x_label="epoch",
        x=along(epochs),
        y=linear([value for band in bands for value in (*band.lows, *band.highs)], within=(0.0, 100.0)),
        curves=tuple(lines),
        bands=tuple(bands),
    )
    num_seeds = len({curve.seed for curve in curves})
    seeds = "one seed" if num_seeds == 1 else f"mean and range of {num_seeds} seeds"
    return Figure(
        slug="test-accuracy",
        title=f"Digits with {setting.noise_rate:.0%} wrong labels: {seeds}",
        about="Test accuracy over epochs, a line per method; the band is the range of seeds.",
        series=tuple(NAMES[method] for method in _DRAWN),
        panels=(panel,),
        shown=frozenset(range(len(lines))),
    )
