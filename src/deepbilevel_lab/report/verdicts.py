"""What a sweep shows, in a sentence or two; whichever way it went, and how sure one can be.

This module knows cells and their figures; it does not know how they are shown.
"""

from collections.abc import Iterable, Sequence
from statistics import mean

from deepbilevel_lab.records import Axis, Cell, RunRecord, SweepRecord
from deepbilevel_lab.report.summaries import Spread, distinct, is_synthetic, measure, parts_of

_BASELINES = ("sgd", "SGD")
_ONE_SEED = "This is one seed: differences of a few points mean nothing."


def is_advice(sweep: SweepRecord) -> bool:
    """Whether a comparison is the last stage of ``deepbilevel recommend``, and tells what to train with."""
    return sweep.name.startswith("recommend-") and not sweep.about.startswith("stage ")


def verdict_of(sweep: SweepRecord) -> str:
    """Return which method ends highest and by how much, for every column; nothing where two are not finished.

    Advice is its own verdict, and made-up images allow none.
    """
    if is_advice(sweep):
        return sweep.about  # judged on images set aside, by a paired test; not by the test images
    if is_synthetic(sweep):
        done = any(run.status == "done" for cell in sweep.cells for run in cell.runs)
        return "The images are synthetic: runs that finish show that everything works, and nothing else." * done
    metric = sweep.metric or "accuracy"
    if sweep.axis is None:
        told = [(title, _of_part(cells, metric)) for title, cells in parts_of(sweep)]
    else:
        told = [(title, _along(sweep.axis, cells)) for title, cells in parts_of(sweep)]
    said = [(title, text) for title, text in told if text]
    if len(said) == 1:
        return said[0][1]
    return " ".join(f"{title}: {text}" for title, text in said)


def verdict_of_runs(runs: Iterable[tuple[str, RunRecord]]) -> str:
    """Return between which test results runs end that were not planned together, by what they are called."""
    several: dict[str, list[float]] = {}
    for name, run in runs:
        if run.status == "done" and (test := run.figure("test")) is not None:
            several.setdefault(name, []).append(test)
    found = {name: mean(tests) for name, tests in several.items()}
    if not found:
        return ""
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    if low == high:
        return f"{high} ends at {found[high]:.1f} % on the test images."
    return f"On the test images runs end between {found[low]:.1f} % ({low}) and {found[high]:.1f} % ({high})."


def _along(axis: Axis, cells: Sequence[Cell]) -> str:
    """Return how often each method is the highest, of the places at which all were measured."""
    rows = distinct(cell.row for cell in cells)
    places: dict[float, dict[str, float]] = {}
    for cell in cells:
        found = measure(cell, "test")
        if cell.x is not None and found is not None:
            places.setdefault(cell.x, {})[cell.row] = found.mean
    shared = [results for results in places.values() if len(results) == len(rows)]
    if len(rows) < 2 or len(shared) < 2:
        return ""
    best = [max(results, key=results.__getitem__) for results in shared]
    told = [f"{row} at {best.count(row)}" for row in rows if row in best]
    text = f"Highest at the end: {_listed(told)} of {len(shared)} values of {axis.name}."
    is_one_seed = all(found.deviation is None for cell in cells if (found := measure(cell, "test")) is not None)
    return f"{text} {_ONE_SEED}" if is_one_seed else text


def _of_part(cells: Sequence[Cell], metric: str) -> str:
    results = {cell.row: found for cell in cells if (found := measure(cell, "test")) is not None}
    if len(results) < 2:
        return ""
    ranked = sorted(results, key=lambda row: -results[row].mean)
    best = ranked[0]
    others = [row for row in _BASELINES if row in results and row != best] or ranked[1:2]
    text = f"{best} ends with the highest test {metric}, {_show(results[best])}"
    text += f", {_gap(results[best], results[others[0]])} above {others[0]}."
    near = [row for row in ranked[1:] if _is_near(results[best], results[row])]
    if near and others[0] not in near:
        text += f" {_listed(near)} {'is' if len(near) == 1 else 'are'} within a standard deviation of it."
    if results[best].deviation is None:
        text += f" {_ONE_SEED}"
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
