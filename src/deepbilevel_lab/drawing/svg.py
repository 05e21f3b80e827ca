"""Figures as SVG: the panels of the page, and whole figures as files; the same lines, coloured by a style sheet.

This module knows geometry; it does not know what is measured. Every element is made by ``_element``, which escapes.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from textwrap import wrap

from markupsafe import Markup, escape

from deepbilevel_lab.drawing.figures import Band, Curve, Dot, Figure, Panel, Scale
from deepbilevel_lab.drawing.looks import LIGHT, NUM_COLOURS, colour_class, dash, outline, tint

WIDTH = 360  # a phone's, so that letters keep their size there
LINE_SWATCH, DOT_SWATCH = 44, 16  # how wide the sign of a line is, so that its dash is seen, and that of a marker alone
_HEIGHT, _TOP, _BOTTOM, _RIGHT = 250, 30, 42, 14
_ROW, _ROW_LABEL = 34, 13
_LETTER = 7.0  # the mean width of a 12-pixel letter in wide fonts
_LINE, _TITLE_LINE, _MOST_LINES = 15, 18, 3
_ACROSS, _GUTTER = 3, 18


def _element(name: str, *inside: str, **attributes: str | float | None) -> Markup:
    """Return an element: ``class_`` is written ``class``, ``data_x`` is ``data-x``, and None is left out.

    >>> _element("text", "a < b", class_="row", x=1.25)
    Markup('<text class="row" x="1.2">a &lt; b</text>')
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_n(value) if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{_joined(inside)}</{name}>" if inside else f"<{name}{given}/>")


def _joined(parts: Iterable[str]) -> Markup:
    return Markup().join(parts)  # what is not an element is escaped


class _Frame:
    """Where values of a panel stand in pixels."""

    def __init__(self, panel: Panel, width: int) -> None:
        labels = [label for _, label in panel.y.ticks] if panel.y else []
        self.width = width
        self.left = 12.0 + _LETTER * max(map(len, labels), default=0)
        self.right = float(width - _RIGHT)
        self.title = _lines(panel.title, width - 8, size=15)
        self.x_label = _x_label(panel, self.right - self.left)
        lower = _TITLE_LINE * (len(self.title) - 1)
        self.top = float(_TOP + lower)
        self.bottom = lower + float(
            (_TOP + _ROW * len(panel.rows)) if panel.rows else max(_HEIGHT, width // 2) - _BOTTOM
        )
        self.height = self.bottom + (28 if panel.rows and not panel.x_label else _BOTTOM)
        self.height += _LINE * max(0, len(self.x_label) - 1)
        self._panel = panel

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * self._panel.x.share(value)

    def y(self, value: float) -> float:
        if self._panel.y is None:  # the line of a dot plot, below its label
            return self.top + _ROW * value + 23
        return self.bottom - (self.bottom - self.top) * self._panel.y.share(value)

    def across(self, y: float, look: str) -> Markup:
        return _element("path", class_=look, d=f"M{_n(self.left)},{_n(y)}H{_n(self.right)}")


def panel_height(panel: Panel, width: int = WIDTH) -> int:
    """Return the height in pixels of a panel."""
    return round(_Frame(panel, width).height)


def draw_panel(panel: Panel, width: int = WIDTH) -> Markup:
    """Return what stands inside the ``<svg>`` of a panel; classes carry the looks, ``data-`` attributes the values."""
    frame = _Frame(panel, width)
    left = 8 if panel.rows else 4
    parts = [_text(left, 16 + _TITLE_LINE * number, line, "title") for number, line in enumerate(frame.title)]
    parts += _axes(panel, frame)
    for line, (number, name) in enumerate(zip(panel.rows, panel.row_labels, strict=True)):
        label = _text(8, frame.top + _ROW * line + _ROW_LABEL, _shorten(name, width - 16), "row")
        parts.append(_element("g", _element("title", name), label, data_series=number))
    parts += [_band(band, frame) for band in sorted(panel.bands, key=lambda band: band.look == "narrow")]
    if panel.y is not None and panel.y.low < 0 < panel.y.high:
        parts.append(frame.across(frame.y(0.0), "zero"))
    parts += [_curve(curve, frame) for curve in panel.curves]
    # The paper's crosses last: they are thin, and what lies under them is still seen.
    parts += [_dot(dot, frame) for dot in sorted(panel.dots, key=lambda dot: dot.look == "paper")]
    return _joined(parts)


def _axes(panel: Panel, frame: _Frame) -> list[Markup]:
    parts: list[Markup] = []
    if panel.y is not None:
        for value, label in panel.y.ticks:
            y = frame.y(value)
            parts += [frame.across(y, "grid"), _text(frame.left - 6, y + 4, label, "tick end")]
    parts += [frame.across(frame.y(float(line)), "grid") for line in range(len(panel.rows))]
    for value, label in _room_for(panel.x, frame):
        x = frame.x(value)
        above, look = (frame.top, "grid" if value else "zero") if panel.rows else (frame.bottom, "zero")
        parts.append(_element("path", class_=look, d=f"M{_n(x)},{_n(above)}V{_n(frame.bottom + 4)}"))
        parts.append(_text(x, frame.bottom + 17, label, "tick middle"))
    parts.append(frame.across(frame.bottom, "zero"))
    middle = (frame.left + frame.right) / 2
    parts += [_text(middle, frame.bottom + 35 + _LINE * n, line, "tick middle") for n, line in enumerate(frame.x_label)]
    return parts


def _x_label(panel: Panel, width: float) -> list[str]:
    if not panel.x_label:
        return []
    # However long the name is, that distances mean nothing must be read.
    warning = "" if panel.x.places is None else ", not to scale"
    room = (_MOST_LINES - 0.5) * width - _LETTER * len(warning)  # half a line for words that are not broken
    return _lines(_shorten(panel.x_label, room) + warning, width)


def _room_for(scale: Scale, frame: _Frame) -> list[tuple[float, str]]:
    """Leave out the labels that would touch the one before."""
    kept: list[tuple[float, str]] = []
    end = float("-inf")
    for value, label in scale.ticks:
        half = _LETTER * len(label) / 2
        if frame.x(value) - half > end + 5 and frame.x(value) + half <= frame.width:
            kept.append((value, label))
            end = frame.x(value) + half
    return kept


def _band(band: Band, frame: _Frame) -> Markup:
    there = [(frame.x(x), frame.y(y)) for x, y in zip(band.xs, band.highs, strict=True)]
    back = [(frame.x(x), frame.y(y)) for x, y in zip(band.xs, band.lows, strict=True)]
    look, path = f"{colour_class(band.series)} {band.look}", f"{_path([*there, *back[::-1]])}Z"
    return _element("path", class_=look, data_series=band.series, data_seed=band.seed, d=path)


def _curve(curve: Curve, frame: _Frame) -> Markup:
    points = [(frame.x(x), frame.y(y)) for x, y in zip(curve.xs, curve.ys, strict=True)]
    end = points[-1]
    if len(points) == 1:  # a line of one point is not seen
        points = [(end[0] - 3, end[1]), (end[0] + 3, end[1])]
    colour, whose = colour_class(curve.series), {"data_series": curve.series, "data_seed": curve.seed}
    xs, ys = (None if curve.label is None else " ".join(f"{v:.6g}" for v in vs) for vs in (curve.xs, curve.ys))
    line = _element(
        "path",
        class_=f"{colour} line",
        stroke_dasharray=dash(curve.series) or None,
        **whose,
        data_label=curve.label,
        data_x=xs,
        data_y=ys,
        d=_path(points),
    )
    if curve.label is None:
        return line
    # Its only marker: a dash alone does not tell more series apart than there are dashes.
    return line + _element("g", marker(curve.series, *end, "full"), class_=f"{colour} end-mark", **whose)


def _dot(dot: Dot, frame: _Frame) -> Markup:
    x, y = frame.x(dot.x), frame.y(dot.y)
    parts: list[Markup] = []
    if dot.y_deviation:
        low, high = (_inside(frame.y(dot.y + sign * dot.y_deviation), frame.top, frame.bottom) for sign in (-1, 1))
        parts.append(_element("path", class_="bar", d=f"M{_n(x - 3)},{_n(low)}h6m-3,0V{_n(high)}m-3,0h6"))
    if dot.x_deviation:
        low, high = (_inside(frame.x(dot.x + sign * dot.x_deviation), frame.left, frame.right) for sign in (-1, 1))
        parts.append(_element("path", class_="bar", d=f"M{_n(low)},{_n(y - 3)}v6m0,-3H{_n(high)}m0,-3v6"))
    parts.append(marker(dot.series, x, y, dot.look))
    look = f"{colour_class(dot.series)} dot"
    return _element("g", *parts, class_=look, data_series=dot.series, data_cx=x, data_cy=y, data_tip=dot.tip)


def marker(series: int, x: float, y: float, look: str) -> Markup:
    """Return a marker: ``full`` and ``hollow`` have the series' shape, ``paper`` is a cross, ``bar`` a spread."""
    if look == "paper":
        return _element("path", class_="cross", d=f"M{_n(x - 4, 2)},{_n(y - 4, 2)}l8,8m0,-8l-8,8")
    if look == "bar":
        return _element("path", class_="bar", d=f"M{_n(x - 7)},{_n(y - 3)}v6m0,-3h14m0,-3v6")
    size = 1.4 if look == "hollow" else 1.0  # seen around a full one at the same place
    corners = outline(series)
    if corners is None:
        return _element("circle", class_=look, cx=_n(x, 2), cy=_n(y, 2), r=4 * size)
    return _element("path", class_=look, d=f"{_path([(x + size * dx, y + size * dy) for dx, dy in corners], 2)}Z")


def draw_swatch(number: int, *, lined: bool) -> Markup:
    """Return the sign of a series in a legend, ``LINE_SWATCH`` or ``DOT_SWATCH`` by 14 pixels."""
    if not lined:
        return _element("g", marker(number, DOT_SWATCH / 2, 7, "full"), class_=colour_class(number))
    line = _element("path", class_="line", d=f"M1,7H{LINE_SWATCH - 1}", stroke_dasharray=dash(number) or None)
    return _element("g", line, marker(number, LINE_SWATCH / 2, 7, "full"), class_=colour_class(number))


def draw_key(look: str) -> Markup:
    """Return the sign of a look that means the same in all series, ``DOT_SWATCH`` by 14 pixels."""
    return _element("g", marker(0, DOT_SWATCH / 2, 7, look), class_="neutral")


def draw_figure(figure: Figure) -> str:
    """Return a figure as a file of its own, with title and legend, in light colours; one panel takes all the width."""
    panels = [panel for whole in figure.panels if (panel := _without(whole, figure.shown)).marks]
    across = min(_ACROSS, max(1, len(panels)))
    each = WIDTH if across > 1 else 2 * WIDTH
    width = across * each + (across - 1) * _GUTTER + 2 * _GUTTER
    headline = _lines(figure.title, width - 2 * _GUTTER, size=16)
    parts = [_text(_GUTTER + 4, 28 + 20 * number, line, "headline") for number, line in enumerate(headline)]
    y = 22.0 + 20 * len(headline)
    for start in range(0, len(panels), across):
        line = panels[start : start + across]
        for place, panel in enumerate(line):
            x = _GUTTER + place * (each + _GUTTER)
            parts.append(_element("g", draw_panel(panel, each), transform=f"translate({x},{_n(y)})"))
        y += max(panel_height(panel, each) for panel in line) + 10
    if not panels:
        parts.append(_text(_GUTTER + 4, y + 10, _shorten(figure.about, width - 2 * _GUTTER), "row"))
    legend, y = _legend(figure, panels, width, y + 4)
    height = round(y + 12)
    drawn = _element(
        "svg",
        _element("title", figure.title),
        _element("desc", figure.about),
        _element("style", _export_style()),
        _element("rect", class_="ground", width=width, height=height),
        _element("g", *parts, *legend, class_="drawing"),
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        role="img",
    )
    return f"{drawn}\n"


def _without(panel: Panel, shown: Collection[int]) -> Panel:
    return replace(
        panel,
        dots=tuple(dot for dot in panel.dots if dot.series in shown),
        curves=tuple(curve for curve in panel.curves if curve.series in shown),
        bands=tuple(band for band in panel.bands if band.series in shown),
    )


def _legend(figure: Figure, panels: Sequence[Panel], width: int, y: float) -> tuple[list[Markup], float]:
    size = LINE_SWATCH if figure.lined else DOT_SWATCH
    rows_say_it = all(panel.rows and None not in panel.rows for panel in panels)
    entries = [
        (draw_swatch(number, lined=figure.lined), size, name)
        for number, name in enumerate(figure.series)
        if number in figure.shown and not rows_say_it
    ]
    entries += [(draw_key(look), DOT_SWATCH, name) for look, name in figure.keys]
    parts: list[Markup] = []
    x = float(_GUTTER)
    for sign, size, name in entries:
        name = _shorten(name, width - 2 * _GUTTER - size - 10)
        needed = size + 6 + _LETTER * len(name) + 14
        if x > _GUTTER and x + needed > width - _GUTTER:
            x, y = float(_GUTTER), y + 20
        parts.append(_element("g", sign, _text(size + 6, 11, name, "row"), transform=f"translate({_n(x)},{_n(y)})"))
        x += needed
    return parts, y + 16


@cache
def figure_style() -> str:
    """Return the style sheet of all drawings; its colours are variables."""
    return (resources.files("deepbilevel_lab.drawing") / "figures.css").read_text(encoding="utf-8")


@cache
def _export_style() -> Markup:
    style = figure_style()
    for name, value in LIGHT.items():
        style = style.replace(f"var(--{name})", value)  # outside browsers variables are rarely understood
    # Of two fonts, or two degrees of transparency, the converter puts now one, now the other first into a PDF.
    style = style.replace("font-weight: 600;", f"stroke: {LIGHT['ink']}; stroke-width: 0.5;")
    for number in range(NUM_COLOURS):
        for look, share in (("wide", 0.2), ("narrow", 0.45)):
            style += f".{colour_class(number)}.{look} {{ fill: {tint(LIGHT[f's{number}'], share)}; }}\n"
    style += ".range { fill: currentColor; fill-opacity: 0.15; }"  # of several series, which lie on one another
    return Markup("".join(line.strip() for line in style.splitlines()))


def _text(x: float, y: float, text: str, look: str) -> Markup:
    return _element("text", text, class_=look, x=x, y=y)


def _lines(text: str, width: float, size: int = 12) -> list[str]:
    """Return a text in lines that fit, a few at most; what nobody would read is cut off.

    >>> _lines("the share of wrong labels", 100)
    ['the share of', 'wrong labels']
    """
    return wrap(text, _most_letters(width, size), max_lines=_MOST_LINES, placeholder="…") or [""]


def _shorten(text: str, width: float, size: int = 12) -> str:
    most = _most_letters(width, size)
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _most_letters(width: float, size: int) -> int:
    return int(width / (_LETTER * size / 12))


def _path(points: Sequence[tuple[float, float]], digits: int = 1) -> str:
    return "M" + "L".join(f"{_n(x, digits)},{_n(y, digits)}" for x, y in points)


def _inside(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def _n(value: float, digits: int = 1) -> str:
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
