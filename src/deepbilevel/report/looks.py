"""Colours, dashes and markers. Every series differs in more than its colour, for those who do not see it or print it.

There are as many of each, and they are shifted against each other from one round of colours to the next. So any two of
colour, dash and marker tell 49 series apart, and each alone the first seven.

This module knows how things look; it does not know what they mean.
"""

from collections.abc import Mapping
from math import cos, pi, sin

NUM_COLOURS = 7
# Okabe and Ito's hues, darkened or lightened until each stands out from its background by 3:1 or more.
LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "raised": "#f4f5f7",
    "ink": "#1b1f24",
    "soft": "#57606a",
    "grid": "#d9dee3",
    "edge": "#868e96",
    "shade": "#868e96",
    "accent": "#0059b3",
    "bad": "#b42318",
    "s0": "#0072b2",
    "s1": "#c94f00",
    "s2": "#007a5a",
    "s3": "#a8408c",
    "s4": "#5c6570",
    "s5": "#8a6100",
    "s6": "#2b87c8",
}
DARK: Mapping[str, str] = {
    "paper": "#14171b",
    "raised": "#1e2329",
    "ink": "#e8eaed",
    "soft": "#a9b1ba",
    "grid": "#343b43",
    "edge": "#7d8690",
    "shade": "#59626c",
    "accent": "#7cb7ff",
    "bad": "#ff8f85",
    "s0": "#58b4ee",
    "s1": "#ff9147",
    "s2": "#35c79b",
    "s3": "#e48fca",
    "s4": "#b4bcc6",
    "s5": "#e3b341",
    "s6": "#9cd2ff",
}
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "16 4", "9 3 2 3 2 3", "2 8")
_MARKERS = ("circle", "square", "triangle", "diamond", "wedge", "star", "bow")
_OUTLINES: Mapping[str, tuple[tuple[float, float], ...]] = {
    "square": ((-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)),
    "triangle": ((0, -4.8), (4.6, 3.4), (-4.6, 3.4)),
    "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    "wedge": ((0, 4.8), (4.6, -3.4), (-4.6, -3.4)),
    "star": tuple((r * sin(pi * i / 5), -r * cos(pi * i / 5)) for i in range(10) for r in (2.7 if i % 2 else 6.2,)),
    "bow": ((-5, -4), (0, -0.8), (5, -4), (5, 4), (0, 0.8), (-5, 4)),
}


def colour_class(series: int) -> str:
    """Return the class that sets a series' colour."""
    return f"c{series % NUM_COLOURS}"


def dash(series: int) -> str:
    """Return the dash pattern of a series' lines; empty for an unbroken line."""
    return _DASHES[(series + series // NUM_COLOURS) % NUM_COLOURS]


def marker(series: int, x: float, y: float, look: str) -> str:
    """Return a marker as SVG: ``full`` and ``hollow`` are ours in the series' shape, ``paper`` is a cross.

    >>> marker(0, 10, 20, "full")
    '<circle class="full" cx="10" cy="20" r="4"/>'
    """
    if look == "paper":
        return f'<path class="cross" d="M{_n(x - 4)},{_n(y - 4)}l8,8m0,-8l-8,8"/>'
    shape = _MARKERS[(series + 2 * (series // NUM_COLOURS)) % NUM_COLOURS]
    size = 1.4 if look == "hollow" else 1.0  # seen around a full one at the same place
    if shape == "circle":
        return f'<circle class="{look}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(4 * size)}"/>'
    path = "M" + "L".join(f"{_n(x + size * dx)},{_n(y + size * dy)}" for dx, dy in _OUTLINES[shape]) + "Z"
    return f'<path class="{look}" d="{path}"/>'


def tint(colour: str, share: float) -> str:
    """Return a colour on white paper of which only a share is laid on.

    >>> tint("#000000", 0.2)
    '#cccccc'
    """
    return "#" + "".join(f"{round(255 - (255 - int(colour[i : i + 2], 16)) * share):02x}" for i in (1, 3, 5))


def variables(colours: Mapping[str, str]) -> str:
    """Return colours as CSS variables."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
