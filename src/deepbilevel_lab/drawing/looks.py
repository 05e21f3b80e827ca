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
_OUTLINES: tuple[tuple[tuple[float, float], ...] | None, ...] = (
    None,  # a circle
    ((-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)),
    ((0, -4.8), (4.6, 3.4), (-4.6, 3.4)),
    ((0, -5), (5, 0), (0, 5), (-5, 0)),
    ((0, 4.8), (4.6, -3.4), (-4.6, -3.4)),
    tuple((r * sin(pi * i / 5), -r * cos(pi * i / 5)) for i in range(10) for r in (2.7 if i % 2 else 6.2,)),  # a star
    ((-5, -4), (0, -0.8), (5, -4), (5, 4), (0, 0.8), (-5, 4)),
)


def colour_class(series: int) -> str:
    """Return the class that sets a series' colour."""
    return f"c{series % NUM_COLOURS}"


def dash(series: int) -> str:
    """Return the dash pattern of a series' lines; empty for an unbroken line."""
    return _DASHES[(series + series // NUM_COLOURS) % NUM_COLOURS]


def outline(series: int) -> tuple[tuple[float, float], ...] | None:
    """Return the corners of a series' markers around their middle, None for a circle."""
    return _OUTLINES[(series + 2 * (series // NUM_COLOURS)) % NUM_COLOURS]


def tint(colour: str, share: float) -> str:
    """Return a colour on white paper of which only a share is laid on.

    >>> tint("#000000", 0.2)
    '#cccccc'
    """
    return "#" + "".join(f"{round(255 - (255 - int(colour[i : i + 2], 16)) * share):02x}" for i in (1, 3, 5))


def variables(colours: Mapping[str, str]) -> str:
    """Return colours as CSS variables."""
    return "".join(f"--{name}:{value};" for name, value in colours.items())
