"""What a sweep shows, in a sentence or two; whichever way it went, and how sure one can be.

This module knows cells and their figures; it does not know how they are shown.
"""

from collections.abc import Sequence

from deepbilevel_lab.records import Cell, SweepRecord
from deepbilevel_lab.report.summaries import Spread, measure, parts_of

_BASELINES = ("sgd", "SGD")


def verdict_of(sweep: SweepRecord) -> str:
    """Return which method ends highest and by how much, for every column; nothing where two are not finished."""
    if sweep.axis is not None:
        return ""  # a curve is read from its picture
    told = [(title, _of_part(cells)) for title, cells in parts_of(sweep)]
    said = [(title, text) for title, text in told if text]
    if len(said) == 1:
        return said[0][1]
    return " ".join(f"{title}: {text}" for title, text in said)


def _of_part(cells: Sequence[Cell]) -> str:
    results = {cell.row: found for cell in cells if (found := measure(cell, "test")) is not None}
    if len(results) < 2:
        return ""
    ranked = sorted(results, key=lambda row: -results[row].mean)
    best = ranked[0]
    others = [row for row in _BASELINES if row in results and row != best] or ranked[1:2]
    text = f"{best} ends highest, at {_show(results[best])}"
    text += f", {_gap(results[best], results[others[0]])} above {others[0]}."
    near = [row for row in ranked[1:] if _is_near(results[best], results[row])]
    if near and others[0] not in near:
        text += f" {_listed(near)} {'ends' if len(near) == 1 else 'end'} within the standard deviation of it."
    if results[best].deviation is None:
        text += " This is one seed: differences of a few points mean nothing."
    return text


def _show(figure: Spread) -> str:
    return f"{figure.mean:.1f} %" if figure.deviation is None else f"{figure.mean:.1f} ± {figure.deviation:.1f} %"


def _gap(ours: Spread, theirs: Spread) -> str:
    gap = f"{ours.mean - theirs.mean:.1f} points"
    return f"{gap} (no more than the standard deviation over seeds)" if _is_near(ours, theirs) else gap


def _is_near(ours: Spread, theirs: Spread) -> bool:
    """Whether the spread over seeds explains a difference; of one seed nothing is known."""
    if ours.deviation is None and theirs.deviation is None:
        return False
    return ours.mean - theirs.mean <= max(ours.deviation or 0.0, theirs.deviation or 0.0)


def _listed(names: Sequence[str]) -> str:
    """Return names as a person lists them.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
