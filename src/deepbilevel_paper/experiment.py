"""What an experiment of the paper is: runs to be made, each with its place in a table or a figure.

This module knows runs as values and their order; it trains nothing. The runs of a cell have seed 0 and one thread on
the CPU; whoever runs them says otherwise with :meth:`Cell.changed`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepbilevel_lab.run_references import refer_to, referred_run
from deepbilevel_lab.training.other_runs import in_order, needs
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_paper.published import Published
from deepbilevel_paper.scale import Scale, find_scale


@dataclass(frozen=True)
class Cell:
    """One run and its place.

    Attributes:
        row: the method.
        column: what it is tried on: network, data, noise.
        spec: the run.
        x: the varied quantity, where the experiment is a figure.
        before: the runs it needs, all of them, those that are needed first in front.
        published: what the paper prints for it, if it does.
    """

    row: str
    column: str
    spec: RunSpec
    x: float | None = None
    before: tuple[RunSpec, ...] = ()
    published: Published | None = None

    def __post_init__(self) -> None:
        known: set[str] = set()
        for spec in (*self.before, self.spec):
            missing = [run_id for run_id in needs(spec) if run_id not in known]
            if missing:
                raise ValueError(f"before lacks run {missing[0]}, which {spec.name} needs; put its spec in front")
            known.add(spec.id)

    def mapped(self, change: Callable[[RunSpec], RunSpec]) -> "Cell":
        """Return the cell with every run of it changed; runs that are needed get new ids, and are named by them."""
        new_ids: dict[str, str] = {}
        specs: list[RunSpec] = []
        for spec in (*self.before, self.spec):
            changed = change(_renamed(spec, new_ids))
            new_ids[spec.id] = changed.id
            specs.append(changed)
        return replace(self, spec=specs[-1], before=tuple(specs[:-1]))

    def changed(self, **fields: Any) -> "Cell":
        """Return the cell with other values in all its runs, such as ``seed=1`` or ``device="cuda"``."""
        return self.mapped(lambda spec: replace(spec, **fields))


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
        name: for the command line.
        title: for people.
        where: in the paper.
        varies: what differs between the columns, or along x.
        plan: makes the cells as the paper ran them.
        published: everything the paper prints for it, also rows we have no run for.
        assumes: what the paper leaves open, and how we read it.
    """

    name: str
    title: str
    where: str
    varies: str
    plan: Callable[[], Sequence[Cell]]
    published: tuple[Published, ...] = ()
    assumes: tuple[str, ...] = ()

    def cells(self, scale: Scale | str = "paper") -> list[Cell]:
        """Return the cells at a scale, with what the paper prints for each."""
        chosen = find_scale(scale) if isinstance(scale, str) else scale
        printed = {(each.row, each.column): each for each in self.published}
        return [
            replace(
                cell.mapped(lambda spec: chosen.reduce(spec, self.name)), published=printed.get((cell.row, cell.column))
            )
            for cell in self.plan()
        ]


def runs_of(cells: Iterable[Cell], *, seeds: Iterable[int] = (0,)) -> list[RunSpec]:
    """Return the runs of cells, each once, none before those it needs."""
    cells = list(cells)
    chosen = (cell.changed(seed=seed) for seed in seeds for cell in cells)
    return in_order(spec for cell in chosen for spec in (*cell.before, cell.spec))


def _renamed(spec: RunSpec, new_ids: dict[str, str]) -> RunSpec:
    """Return the spec with the ids it names replaced."""

    def renamed(text: str | None) -> str | None:
        run_id = referred_run(text)
        return text if run_id is None else refer_to(new_ids.get(run_id, run_id))

    network = replace(spec.network, weights=renamed(spec.network.weights))
    return replace(spec, network=network, data=replace(spec.data, labels=renamed(spec.data.labels)))
