"""Which trials are run in a budget: every candidate at three rates, then fewer with more seeds (successive halving).

All trials have the same length. Short ones would prefer large learning rates and miss what memorising does later.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepbilevel_lab.advice.candidates import BASELINE
from deepbilevel_lab.specs import SpecError, with_value
from deepbilevel_lab.sweeps.comparison import data_title, plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.sweep import Cell, Sweep
from deepbilevel_lab.training.schedules import Constant, Cosine
from deepbilevel_lab.training.spec import RunSpec

FINALISTS = 4
"""How many candidates get the most seeds, the baseline among them."""
SEEDS = (1, 2, 4)
"""How many seeds each setting of a stage has; those of earlier stages count."""
_SELECTION = 0.2  # more than for tuning: methods are judged by these images, and differences are small
_RATES = (0.3, 1.0, 3.0)


@dataclass(frozen=True)
class Setting:
    """A candidate with a learning rate."""

    name: str
    lr: float


def prepared(base: RunSpec) -> RunSpec:
    """Return the run that all trials share: images set aside, and a rate that falls to zero by default."""
    base = with_value(base, "method", {"kind": "sgd"})
    if base.data.selection is None:
        base = with_value(base, "data.selection", _SELECTION)
    base = with_value(base, "data.selection_by_seed", True)
    return replace(base, schedule=Cosine()) if isinstance(base.schedule, Constant) else base


def first_settings(base: RunSpec, names: Sequence[str]) -> list[Setting]:
    """Return every candidate at a third of the usual learning rate, at the usual one, and at three times that."""
    return [Setting(name, round(base.optimizer.lr * rate, 10)) for name in names for rate in _RATES]


def trial_epochs(
    seconds_per_epoch: float, seconds_to_start: float, budget: float, jobs: int, num_candidates: int, most: int
) -> int:
    """Return the epochs of a trial, such that all stages together fit the budget.

    >>> trial_epochs(1.0, 3.0, budget=600.0, jobs=1, num_candidates=5, most=100)
    18

    Args:
        seconds_per_epoch: of one run.
        seconds_to_start: from the start of its process to its first epoch, and from its last one to its end.
        budget: seconds for everything.
        jobs: runs side by side.
        num_candidates: how many methods are tried.
        most: epochs that a run usually has.
    """
    settings = (num_candidates * len(_RATES), num_candidates, min(FINALISTS, num_candidates))
    new_seeds = (SEEDS[0], SEEDS[1] - SEEDS[0], SEEDS[2] - SEEDS[1])
    trials = sum(count * seeds for count, seeds in zip(settings, new_seeds, strict=True))
    epochs = int((budget * jobs / trials - seconds_to_start) / seconds_per_epoch)
    if epochs < 1:
        least = math.ceil((seconds_to_start + seconds_per_epoch) * trials / jobs / 60)
        raise SpecError(
            f"--budget {budget:.0f}s is too short: a trial takes about {seconds_to_start:.1f}s to start and "
            f"{seconds_per_epoch:.1f}s per epoch here, so {trials} trials of one epoch need about {least}m; give more "
            "time, or fewer images with --limit"
        )
    return min(epochs, most)


def make_stage(
    base: RunSpec, number: int, epochs: int, settings: Sequence[Setting], name: str, about: str = ""
) -> Sweep:
    """Return the trials of a stage, counted from 0, as a sweep with a cell for every setting."""
    base = replace(base, epochs=epochs, evaluate_every=epochs)
    seeds = range(base.seed, base.seed + SEEDS[number])
    cells: list[Cell] = []
    for each in settings:
        expression: Mapping[str, Any] = {**read_methods(each.name)[each.name], "optimizer.lr": each.lr}
        if base.optimizer.name != "SGD" and each.name.startswith("cross-validated"):
            expression = {**expression, "method.shrink": "update"}  # their normalisation would undo the shrinking
        (cell,) = plan(base, {each.name: expression}, list(seeds)).cells
        cells.append(replace(cell, x=each.lr) if number == 0 else cell)
    return Sweep(
        kind="comparison",
        name=name,
        title=f"Recommendation for {data_title(base)}",
        about=about or f"stage {number + 1} of {len(SEEDS)}, {epochs} epochs",
        cells=cells,
        seeds=tuple(seeds),
        base=base,
    )


def next_settings(scores: Mapping[Setting, float], number: int) -> list[Setting]:
    """Return what the next stage tries: the best rate of every candidate, and in the end the best candidates.

    Args:
        scores: results on the images set aside; settings of which a run failed are not in it.
        number: of the stage that is over, counted from 0.
    """
    best: dict[str, Setting] = {}
    for setting, score in scores.items():
        if setting.name not in best or score > scores[best[setting.name]]:
            best[setting.name] = setting
    ranked = sorted(best.values(), key=lambda setting: -scores[setting])
    if number == 0:
        return ranked
    kept = ranked[:FINALISTS]
    if BASELINE in best and best[BASELINE] not in kept:
        kept = [*kept[: FINALISTS - 1], best[BASELINE]]
    return kept
