"""Methods side by side: the runs that compare them fairly.

Fair means: the same images, wrong labels, augmentation, initial weights, number of image visits and evaluations for all
methods of a seed. This module decides that; it does not run anything and does not know what is printed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepbilevel_lab.records import Axis
from deepbilevel_lab.specs import SpecError, spec_id, with_value
from deepbilevel_lab.sweeps.sweep import Cell, Sweep
from deepbilevel_lab.sweeps.tuning import USUAL_SELECTION, Grid
from deepbilevel_lab.training.spec import RunSpec

_HELD_EQUAL = (
    *("data", "noise", "epochs", "seed", "evaluate_every", "network.name", "network.weights"),
    *("device", "precision", "threads"),
)


def plan(
    base: RunSpec,
    methods: Mapping[str, Mapping[str, Any]],
    seeds: Sequence[int],
    *,
    tune: Grid | None = None,
    name: str | None = None,
) -> Sweep:
    """Return the comparison, or refuse it, naming the method that cannot be.

    Args:
        base: what all runs have in common; its method is left aside.
        methods: dotted keys and values by name, as :func:`~deepbilevel_lab.sweeps.expressions.read_methods`
            returns them.
        seeds: of which every method has a run each.
        tune: give every method its own value of a setting; a share of the images is then set aside to choose by.
        name: of the record; one that says exactly which comparison it is unless given.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise SpecError(f"name must be letters, digits, dots and dashes, since files are called so, got {name!r}")
    if not methods or not seeds:
        raise SpecError("a comparison needs at least one method and one seed")
    try:
        base = with_value(base, "method", {"kind": "sgd"})
    except ValueError as error:
        raise SpecError(f"{error}; give it to the methods it is for, as in bilevel[group.holdout=0.1]") from error
    base = replace(base, seed=seeds[0])
    base = base if tune is None else set_selection_aside(base)
    column = describe_base(base)
    cells: list[Cell] = []
    for method, settings in methods.items():
        for value in [None] if tune is None else tune.values:
            tuned = {} if tune is None else {tune.key: value}
            spec = _apply(base, method, {**settings, **tuned})
            specs = [replace(spec, seed=seed) for seed in seeds]
            x = None if value is None else float(value)
            cells.append(Cell(method, column, specs, x=x, settings={**settings, **tuned}))
    # Whole numbers as floats, so that a comparison keeps the name it always had.
    grid = {} if tune is None else {"tune": replace(tune, values=tuple(map(float, tune.values)))}
    chosen = spec_id({"base": base, "methods": methods, "seeds": list(seeds), **grid})
    rate = "" if tune is not None and tune.key == "optimizer.lr" else f", learning rate {base.optimizer.lr:g}"
    items = "rows" if base.data.name == "table" else "images"
    return Sweep(
        kind="comparison",
        name=name or f"compare-{chosen}",
        title=f"Methods on {data_title(base)}",
        about=f"{base.epochs} epochs{rate}, groups of {base.group.size} {items}",
        axis=None if tune is None else Axis(tune.key),
        cells=cells,
        seeds=tuple(seeds),
        base=base,
    )


def set_selection_aside(base: RunSpec) -> RunSpec:
    """Return the run with images set aside to choose by, as many as usual unless it says how many."""
    return base if base.data.selection is not None else with_value(base, "data.selection", USUAL_SELECTION)


def data_title(base: RunSpec) -> str:
    """Return what people call the data: the user's own by its folder or file, the others by their names."""
    return base.data.name if base.data.path is None else Path(base.data.path).resolve().name


def describe_base(base: RunSpec) -> str:
    """Return what all methods are tried on, in a few words after the name of the data.

    >>> from deepbilevel_lab.training import default_spec
    >>> describe_base(with_value(default_spec("digits"), "noise", "uniform:0.5"))
    'uniform:0.5, digit_cnn'
    """
    labels = "" if base.data.labels is None else f"labels {base.data.labels}"
    limit = "" if base.data.limit is None else f"{base.data.limit:,} images"
    noise = "" if base.noise is None else str(base.noise)
    return ", ".join(part for part in (labels, limit, noise, base.network.name) if part)


def _apply(base: RunSpec, name: str, settings: Mapping[str, Any]) -> RunSpec:
    for key in settings:
        if any(key == held or key.startswith(f"{held}.") for held in _HELD_EQUAL) or key == "network":
            remedy = "--seeds, as in --seeds 0-4" if key == "seed" else f"--set {key}=..."
            raise SpecError(f"method {name!r}: {key} is the same for all methods of a comparison; use {remedy}")
    spec = base
    try:
        for key, value in settings.items():
            # As a table: the name of a kind that is there already would keep its settings.
            spec = with_value(spec, key, {"kind": value} if key == "method" and isinstance(value, str) else value)
    except ValueError as error:
        raise SpecError(f"method {name!r}: {error}") from error
    if spec.group.size != base.group.size:
        raise SpecError(
            f"method {name!r}: a step on {spec.group.size} images, where the others take {base.group.size}, would make "
            "other visits; keep num_batches * batch_size as it is, or change it for all with --set"
        )
    return spec
