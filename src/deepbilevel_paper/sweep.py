"""An experiment of the paper as a sweep: what is run for it, beside what is printed for it."""

from collections.abc import Sequence
from typing import Any

from deepbilevel_lab import records
from deepbilevel_lab.sweeps.sweep import Cell, Sweep
from deepbilevel_paper.experiment import Experiment
from deepbilevel_paper.published import Published
from deepbilevel_paper.scale import Scale, find_scale


def make_sweep(experiment: Experiment, scale: Scale | str, seeds: Sequence[int], **fields: Any) -> Sweep:
    """Return the runs of an experiment; rows that are only printed have no runs, and show what is printed.

    Args:
        experiment: a table or figure.
        scale: its size.
        seeds: of which every cell has a run each.
        fields: of all runs, such as ``device="cuda"``.
    """
    chosen = find_scale(scale) if isinstance(scale, str) else scale
    cells: list[Cell] = []
    for cell in experiment.cells(chosen):
        seeded = [cell.changed(seed=seed, **fields) for seed in seeds]
        before = [spec for each in seeded for spec in each.before]
        specs = [each.spec for each in seeded]
        cells.append(Cell(cell.row, cell.column, specs, cell.x, _printed(cell.published), before=before))
    ours = {(cell.row, cell.column) for cell in cells}
    cells += [
        Cell(each.row, each.column, (), published=_printed(each))
        for each in experiment.published
        if (each.row, each.column) not in ours
    ]
    assumed = "".join(f" Read as: {each}." for each in experiment.assumes)
    return Sweep(
        kind="experiment",
        name=f"{experiment.name}-{chosen.name}",
        title=experiment.title,
        about=f"{experiment.where}; varied is {experiment.varies}.{assumed}",
        cells=cells,
        seeds=tuple(seeds),
        scale=chosen.name,
        reduced=_reduced(experiment, chosen),
        axis=records.Axis(experiment.varies) if any(cell.x is not None for cell in cells) else None,
    )


def _reduced(experiment: Experiment, scale: Scale) -> str | None:
    """Say how the runs became smaller, once for every way in which they did."""
    if scale.reductions is None:
        return None
    sentences: dict[str, list[str]] = {}
    for cell in experiment.plan():
        networks = sentences.setdefault(scale.describe(cell.spec, experiment.name), [])
        if cell.spec.network.name not in networks:
            networks.append(cell.spec.network.name)
    if len(sentences) == 1:
        return next(iter(sentences))
    return "; ".join(f"{', '.join(networks)}: {sentence}" for sentence, networks in sentences.items())


def _printed(published: Published | None) -> records.Published | None:
    if published is None:
        return None
    notes = [
        f"doubtful: {published.doubtful}" if published.doubtful else None,
        f"network: {published.network}" if published.network else None,
        f"measured by {published.source}" if published.source else None,
    ]
    note = "; ".join(each for each in notes if each)
    return records.Published(published.train, published.test, published.gap, note or None)
