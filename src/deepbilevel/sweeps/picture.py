"""The record of a comparison as a picture: a row per method, its best epoch, its last, and what it memorised."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from deepbilevel.replacement import replacing

# Okabe and Ito's palette stays apart for colour-blind readers; the shape of a mark says the same again.
_TEST, _TRAIN, _FAINT = "#0072B2", "#D55E00", "#999999"
_ROW_INCHES, _FRAME_INCHES = 0.5, 1.4


def draw_comparison(record: Mapping[str, Any], path: Path) -> None:
    """Write a PNG of the comparison to ``path``."""
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    methods: list[Mapping[str, Any]] = record["cells"]
    figure = Figure(figsize=(8, _FRAME_INCHES + _ROW_INCHES * len(methods)), layout="constrained")
    axes = figure.subplots()
    for row, method in enumerate(methods):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color=_FAINT, alpha=0.1, linewidth=0)
        _draw_row(axes, row, method["summary"])
    axes.set_yticks(range(len(methods)), [_label(method) for method in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)  # the first on top, as in the table
    axes.set_xlabel(f"{record['metric'] or 'accuracy'} (%); bars: standard deviation over seeds")
    axes.set_title(_title(record), loc="left", fontsize="medium")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    # Below the rows: anywhere among them it would cover somebody's marks.
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if unique:
        figure.legend(unique.values(), unique.keys(), frameon=False, ncols=3, loc="outside lower center")
    drawn = BytesIO()
    figure.savefig(drawn, dpi=160, format="png")
    with replacing(path) as stream:
        stream.write(drawn.getvalue())


def _draw_row(axes: Any, row: int, summary: Mapping[str, Any]) -> None:
    if summary["test"] is None:
        axes.text(
            0.5, row, "no finished run", color=_FAINT, ha="center", va="center", transform=axes.get_yaxis_transform()
        )
        return
    # Apart from each other: bars of standard deviation that lie on one another cannot be told apart.
    _mark(axes, summary["best"], row - 0.22, "o", _TEST, "test, best epoch (hindsight)", face="white")
    _mark(axes, summary["test"], row, "o", _TEST, "test, last epoch")
    _mark(axes, summary["train"], row + 0.22, "D", _TRAIN, "train, labels as given", size=5)


def _mark(
    axes: Any,
    figure: Mapping[str, Any],
    row: float,
    shape: str,
    colour: str,
    label: str,
    *,
    face: str = "",
    size: int = 7,
) -> None:
    axes.errorbar(
        figure["mean"],
        row,
        xerr=figure["spread"],
        fmt=shape,
        color=colour,
        markerfacecolor=face or colour,
        markersize=size,
        elinewidth=1.4,
        capsize=2.5,
        label=label,
    )


def _label(method: Mapping[str, Any]) -> str:
    done = sum(run["status"] == "done" for run in method["runs"])
    return method["row"] if done == len(method["runs"]) else f"{method['row']} ({done} of {len(method['runs'])})"


def _title(record: Mapping[str, Any]) -> str:
    count = len(record["seeds"])
    seeds = "one seed" if count == 1 else f"{count} seeds"
    return f"{record['title']}: {record['cells'][0]['column']}, {record['base']['epochs']} epochs, {seeds}"
