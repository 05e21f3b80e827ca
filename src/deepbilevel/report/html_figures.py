"""Figures in the page: the panels, and the controls that choose what is drawn in them. The script does the rest.

Without the script everything is shown.
"""

from collections.abc import Mapping, Sequence
from html import escape

from deepbilevel.report.drawing import DOT_SWATCH, LINE_SWATCH, WIDTH, draw_key, draw_panel, draw_swatch, panel_height
from deepbilevel.report.figures import Figure, Panel
from deepbilevel.report.html_tables import show_files
from deepbilevel.report.run_figures import CURVES, WEIGHTS


def show_figures(choices: Sequence[tuple[str, Figure]], slug: str, files: Mapping[str, Sequence[str]]) -> str:
    """Return figures of which one is looked at at a time, with the controls they share; of an empty one its caption."""
    if not any(figure.panels for _, figure in choices):
        return "".join(f'<figure id="{figure.slug}">{_caption(figure)}</figure>' for _, figure in choices)
    figures = "".join(
        f'<figure data-setting="{number}" id="{figure.slug}">{_caption(figure)}'
        f'<div class="panels">{"".join(_panel(panel, figure) for panel in figure.panels)}</div>'
        f'<p class="nothing" hidden></p>{show_files(files.get(figure.slug, ()))}</figure>'
        for number, (_, figure) in enumerate(choices)
    )
    return f'<div class="explorer">{_controls(choices, slug)}{figures}</div>'


def _caption(figure: Figure) -> str:
    return f"<figcaption><strong>{escape(figure.title)}.</strong> {escape(figure.about)}</figcaption>"


def _controls(choices: Sequence[tuple[str, Figure]], slug: str) -> str:
    figures = [figure for _, figure in choices]
    parts: list[str] = []
    if len(choices) > 1:
        options = "".join(f'<option value="{i}">{escape(name)}</option>' for i, (name, _) in enumerate(choices))
        parts.append(
            f'<fieldset class="setting"><legend>Setting</legend><select name="setting" id="{slug}-setting" '
            f'autocomplete="off" aria-label="Setting">{options}</select></fieldset>'
        )
    parts.append(_series_choice(figures))
    seeds = sorted({seed for figure in figures for seed in figure.seeds})
    if len(seeds) > 1:
        boxes = "".join(_box("seed", str(seed), str(seed), checked=True) for seed in seeds)
        parts.append(f'<fieldset class="seeds"><legend>Seeds</legend><div class="choices">{boxes}</div></fieldset>')
    if figures[0].seeds:
        keys = {panel.key for figure in figures for panel in figure.panels}
        names = {**CURVES, WEIGHTS: "Weights of mini-batches"}
        boxes = "".join(_box("panel", k, name, checked=k != "loss") for k, name in names.items() if k in keys)
        parts.append(f'<fieldset class="metrics"><legend>Show</legend><div class="choices">{boxes}</div></fieldset>')
    return f'<form class="controls" autocomplete="off">{"".join(parts)}</form>'


def _series_choice(figures: Sequence[Figure]) -> str:
    first = figures[0]
    shown = frozenset[int]().union(*(figure.shown for figure in figures))
    there = {mark.series for figure in figures for panel in figure.panels for mark in panel.marks}
    boxes = "".join(
        _box(
            "series",
            str(number),
            name,
            checked=number in shown,
            sign=draw_swatch(number, lined=first.lined),
            lined=first.lined,
        )
        for number, name in enumerate(first.series)
        if number in there
    )
    keys = "".join(
        f'<span class="key">{_swatch(draw_key(look), DOT_SWATCH)}{escape(name)}</span>' for look, name in first.keys
    )
    buttons = (
        '<button type="button" data-set="all">all</button><button type="button" data-set="none">none</button>'
        if len(there) > 2
        else ""
    )
    below = f'<div class="keys">{keys}{buttons}</div>' if keys or buttons else ""
    return f'<fieldset><legend>{escape(first.series_word)}</legend><div class="choices">{boxes}</div>{below}</fieldset>'


def _box(name: str, value: str, text: str, *, checked: bool, sign: str = "", lined: bool = False) -> str:
    on = " checked" if checked else ""
    swatch = _swatch(sign, LINE_SWATCH if lined else DOT_SWATCH) if sign else ""
    return (
        f'<label><input type="checkbox" name="{name}" value="{value}"{on}>{swatch}<span>{escape(text)}</span></label>'
    )


def _swatch(sign: str, width: int) -> str:
    size = f'width="{width}" height="14" viewBox="0 0 {width} 14"'
    return f'<svg class="swatch drawing" {size} aria-hidden="true">{sign}</svg>'


def _panel(panel: Panel, figure: Figure) -> str:
    whose = "" if panel.series is None else f' data-series="{panel.series}"'
    what = panel.title.partition(" (")[0]
    across = panel.x_label or panel.title
    label = f"{panel.title}, by {panel.x_label or 'method'}. {figure.title}. Arrow keys read its points."
    return (
        f'<div class="panel" data-panel="{escape(panel.key)}"{whose}>'
        f'<svg class="drawing" viewBox="0 0 {WIDTH} {panel_height(panel)}" tabindex="0" role="img" '
        f'aria-label="{escape(label)}" data-across="{escape(across)}" data-what="{escape(what)}" '
        f'data-unit="{" " + panel.y_unit if panel.y_unit else ""}">{draw_panel(panel)}</svg></div>'
    )
