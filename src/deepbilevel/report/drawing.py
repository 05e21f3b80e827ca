"""Figures as SVG: the panels of the page, and whole figures as files; the same lines, coloured by a style sheet.

This module knows geometry; it does not know what is measured. Everything that came from a record is escaped here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib import resources

from deepbilevel.report.figures import Band, Curve, Dot, Figure, Panel
from deepbilevel.report.looks import LIGHT, NUM_COLOURS, colour_class, dash, marker, tint
from deepbilevel.report.scales import Scale

WIDTH = 360  # a phone's, so that letters keep their size there
LINE_SWATCH, DOT_SWATCH = 44, 16  # how wide the sign of a line is, so that its dash is seen, and that of a marker alone
_HEIGHT, _TOP, _BOTTOM, _RIGHT = 250, 30, 42, 14
_ROW, _ROW_LABEL = 34, 13
_LETTER = 7.0  # the mean width of a 12-pixel letter in wide fonts
_ACROSS, _GUTTER = 3, 18


class _Frame:
    """Where values of a panel stand in pixels."""

    def __init__(self, panel: Panel) -> None:
        labels = [label for _, label in panel.y.ticks] if panel.y else []
        self.left = 12.0 + _LETTER * max(map(len, labels), default=0)
        self.right = WIDTH - _RIGHT
        self.top = _TOP
        self.bottom = (_TOP + _ROW * len(panel.rows)) if panel.rows else _HEIGHT - _BOTTOM
        self.height = self.bottom + (28 if panel.rows and not panel.x_label else _BOTTOM)
        self._panel = panel

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * self._panel.x.share(value)

    def y(self, value: float) -> float:
        if self._panel.y is None:  # the line of a dot plot, below its label
            return self.top + _ROW * value + 23
        return self.bottom - (self.bottom - self.top) * self._panel.y.share(value)


def panel_height(panel: Panel) -> int:
    """Return the height in pixels of a panel that is ``WIDTH`` wide."""
    return round(_Frame(panel).height)


def draw_panel(panel: Panel) -> str:
    """Return what stands inside the ``<svg>`` of a panel; classes carry the looks, ``data-`` attributes the values."""
    frame = _Frame(panel)
    parts = [_text(8 if panel.rows else 4, 16, _shorten(panel.title, WIDTH - 8, 15), "title")]
    parts += _axes(panel, frame)
    for line, (number, name) in enumerate(zip(panel.rows, panel.row_labels, strict=True)):
        label = _text(8, frame.top + _ROW * line + _ROW_LABEL, _shorten(name, WIDTH - 16), "row")
        parts.append(f'<g data-series="{number}"><title>{escape(name)}</title>{label}</g>')
    parts += [_band(band, frame) for band in sorted(panel.bands, key=lambda band: band.look == "narrow")]
    if panel.y is not None and panel.y.low < 0 < panel.y.high:
        parts.append(f'<path class="zero" d="M{_n(frame.left)},{_n(frame.y(0.0))}H{_n(frame.right)}"/>')
    parts += [_curve(curve, frame) for curve in panel.curves]
    # The paper's crosses last: they are thin, and what lies under them is still seen.
    parts += [_dot(dot, frame) for dot in sorted(panel.dots, key=lambda dot: dot.look == "paper")]
    return "".join(parts)


def _axes(panel: Panel, frame: _Frame) -> list[str]:
    parts: list[str] = []
    if panel.y is not None:
        for value, label in panel.y.ticks:
            y = frame.y(value)
            parts.append(f'<path class="grid" d="M{_n(frame.left)},{_n(y)}H{_n(frame.right)}"/>')
            parts.append(_text(frame.left - 6, y + 4, label, "tick end"))
    for line in range(len(panel.rows)):
        y = frame.y(float(line))
        parts.append(f'<path class="grid" d="M{_n(frame.left)},{_n(y)}H{_n(frame.right)}"/>')
    for value, label in _room_for(panel.x, frame):
        x = frame.x(value)
        above = frame.top if panel.rows else frame.bottom
        parts.append(
            f'<path class="{"grid" if panel.rows else "zero"}" d="M{_n(x)},{_n(above)}V{_n(frame.bottom + 4)}"/>'
        )
        parts.append(_text(x, frame.bottom + 17, label, "tick middle"))
    parts.append(f'<path class="zero" d="M{_n(frame.left)},{_n(frame.bottom)}H{_n(frame.right)}"/>')
    if panel.x_label:
        middle = (frame.left + frame.right) / 2
        # However long the name is, that distances mean nothing must be read.
        warning = "" if panel.x.places is None else ", not to scale"
        room = frame.right - frame.left - _LETTER * len(warning)
        parts.append(_text(middle, frame.bottom + 35, _shorten(panel.x_label, room) + warning, "tick middle"))
    return parts


def _room_for(scale: Scale, frame: _Frame) -> list[tuple[float, str]]:
    """Leave out the labels that would touch the one before."""
    kept: list[tuple[float, str]] = []
    end = float("-inf")
    for value, label in scale.ticks:
        half = _LETTER * len(label) / 2
        if frame.x(value) - half > end + 5 and frame.x(value) + half <= WIDTH:
            kept.append((value, label))
            end = frame.x(value) + half
    return kept


def _band(band: Band, frame: _Frame) -> str:
    there = [(frame.x(x), frame.y(y)) for x, y in zip(band.xs, band.highs, strict=True)]
    back = [(frame.x(x), frame.y(y)) for x, y in zip(band.xs, band.lows, strict=True)]
    look = f"{colour_class(band.series)} {band.look}"
    return f'<path class="{look}"{_whose(band.series, band.seed)} d="{_path([*there, *back[::-1]])}Z"/>'


def _curve(curve: Curve, frame: _Frame) -> str:
    points = [(frame.x(x), frame.y(y)) for x, y in zip(curve.xs, curve.ys, strict=True)]
    if len(points) == 1:  # a line of one point is not seen
        points.append((points[0][0] + 3, points[0][1]))
        points[0] = (points[0][0] - 3, points[0][1])
    pattern = f' stroke-dasharray="{dash(curve.series)}"' if dash(curve.series) else ""
    values, end = "", ""
    if curve.label is not None:
        # Its only marker: a dash alone does not tell more series apart than there are dashes.
        shape = marker(curve.series, frame.x(curve.xs[-1]), frame.y(curve.ys[-1]), "full")
        end = f'<g class="{colour_class(curve.series)} end-mark"{_whose(curve.series, curve.seed)}>{shape}</g>'
        xs, ys = (" ".join(f"{value:.6g}" for value in values) for values in (curve.xs, curve.ys))
        values = f' data-label="{escape(curve.label)}" data-x="{xs}" data-y="{ys}"'
    whose = _whose(curve.series, curve.seed)
    return f'<path class="{colour_class(curve.series)} line"{pattern}{whose}{values} d="{_path(points)}"/>{end}'


def _dot(dot: Dot, frame: _Frame) -> str:
    x, y = frame.x(dot.x), frame.y(dot.y)
    bars = ""
    if dot.y_deviation:
        low, high = (_inside(frame.y(dot.y + sign * dot.y_deviation), frame.top, frame.bottom) for sign in (-1, 1))
        bars += f'<path class="bar" d="M{_n(x - 3)},{_n(low)}h6m-3,0V{_n(high)}m-3,0h6"/>'
    if dot.x_deviation:
        low, high = (_inside(frame.x(dot.x + sign * dot.x_deviation), frame.left, frame.right) for sign in (-1, 1))
        bars += f'<path class="bar" d="M{_n(low)},{_n(y - 3)}v6m0,-3H{_n(high)}m0,-3v6"/>'
    place = f'data-cx="{_n(x)}" data-cy="{_n(y)}" data-tip="{escape(dot.tip)}"'
    shape = marker(dot.series, x, y, dot.look)
    return f'<g class="{colour_class(dot.series)} dot"{_whose(dot.series, None)} {place}>{bars}{shape}</g>'


def draw_swatch(number: int, *, lined: bool) -> str:
    """Return the sign of a series in a legend, ``LINE_SWATCH`` or ``DOT_SWATCH`` by 14 pixels."""
    if not lined:
        return f'<g class="{colour_class(number)}">{marker(number, DOT_SWATCH / 2, 7, "full")}</g>'
    pattern = f' stroke-dasharray="{dash(number)}"' if dash(number) else ""
    line = f'<path class="line" d="M1,7H{LINE_SWATCH - 1}"{pattern}/>'
    return f'<g class="{colour_class(number)}">{line}{marker(number, LINE_SWATCH / 2, 7, "full")}</g>'


def draw_key(look: str) -> str:
    """Return the sign of a look that means the same in all series, ``DOT_SWATCH`` by 14 pixels."""
    return f'<g class="neutral">{marker(0, DOT_SWATCH / 2, 7, look)}</g>'


def draw_figure(figure: Figure) -> str:
    """Return a figure as a file of its own, with title and legend, in light colours."""
    panels = [panel for whole in figure.panels if (panel := _without(whole, figure.shown)).marks]
    across = min(_ACROSS, max(1, len(panels)))
    width = max(across * WIDTH + (across - 1) * _GUTTER, 2 * WIDTH) + 2 * _GUTTER
    parts = [_text(_GUTTER + 4, 28, _shorten(figure.title, width - 2 * _GUTTER, 16), "headline")]
    y = 42.0
    for start in range(0, len(panels), across):
        line = panels[start : start + across]
        for place, panel in enumerate(line):
            x = _GUTTER + place * (WIDTH + _GUTTER)
            parts.append(f'<g transform="translate({x},{_n(y)})">{draw_panel(panel)}</g>')
        y += max(panel_height(panel) for panel in line) + 10
    legend, y = _legend(figure, width, y + 4)
    height = round(y + 12)
    size = f'width="{width}" height="{height}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(figure.title)}</title><desc>{escape(figure.about)}</desc><style>{_export_style()}</style>"
        f'<rect class="ground" {size}/><g class="drawing">{"".join(parts)}{legend}</g></svg>\n'
    )


def _without(panel: Panel, shown: Iterable[int]) -> Panel:
    return replace(
        panel,
        dots=tuple(dot for dot in panel.dots if dot.series in shown),
        curves=tuple(curve for curve in panel.curves if curve.series in shown),
        bands=tuple(band for band in panel.bands if band.series in shown),
    )


def _legend(figure: Figure, width: int, y: float) -> tuple[str, float]:
    size = LINE_SWATCH if figure.lined else DOT_SWATCH
    entries = [
        (draw_swatch(number, lined=figure.lined), size, name)
        for number, name in enumerate(figure.series)
        if number in figure.shown
    ]
    entries += [(draw_key(look), DOT_SWATCH, name) for look, name in figure.keys]
    parts: list[str] = []
    x = float(_GUTTER)
    for sign, size, name in entries:
        name = _shorten(name, width - 2 * _GUTTER - size - 10)
        needed = size + 6 + _LETTER * len(name) + 14
        if x > _GUTTER and x + needed > width - _GUTTER:
            x, y = float(_GUTTER), y + 20
        parts.append(f'<g transform="translate({_n(x)},{_n(y)})">{sign}{_text(size + 6, 11, name, "row")}</g>')
        x += needed
    return "".join(parts), y + 16


@cache
def read_file(name: str) -> str:
    """Return a file that the page is made of."""
    return (resources.files("deepbilevel.report") / "page_files" / name).read_text(encoding="utf-8")


@cache
def _export_style() -> str:
    style = read_file("figures.css")
    for name, value in LIGHT.items():
        style = style.replace(f"var(--{name})", value)  # outside browsers variables are rarely understood
    # Of two fonts, or two degrees of transparency, the converter puts now one, now the other first into a PDF.
    style = style.replace("font-weight: 600;", f"stroke: {LIGHT['ink']}; stroke-width: 0.5;")
    for number in range(NUM_COLOURS):
        for look, share in (("wide", 0.2), ("narrow", 0.45)):
            style += f".{colour_class(number)}.{look} {{ fill: {tint(LIGHT[f's{number}'], share)}; }}\n"
    return "".join(line.strip() for line in style.splitlines())


def _whose(series: int, seed: int | None) -> str:
    return f' data-series="{series}"' + ("" if seed is None else f' data-seed="{seed}"')


def _text(x: float, y: float, text: str, look: str) -> str:
    return f'<text class="{look}" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _shorten(text: str, width: float, size: int = 12) -> str:
    most = int(width / (_LETTER * size / 12))
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)},{_n(y)}" for x, y in points)


def _inside(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
