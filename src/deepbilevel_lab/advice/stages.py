"""Which trials are run within a budget: all candidates briefly, then fewer and longer (successive halving).

Every stage trains from scratch with the whole schedule, so that no candidate is judged in the middle of one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepbilevel_lab.advice.candidates import BASELINE
from deepbilevel_lab.specs import SpecError, with_value
from deepbilevel_lab.sweeps.comparison import plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.sweeps.sweep import Cell, Sweep
from deepbilevel_lab.training.schedules import Constant, Cosine
from deepbilevel_lab.training.spec import RunSpec

FINALISTS = 3
"""How many candidates are trained longest, the baseline among them."""
_SELECTION = 0.2  # more than for tuning: methods are judged by these images, and differences are small
_RATES = (0.3, 1.0, 3.0)
_LENGTHS = (1, 2, 4)
_FINAL_SEEDS = 2


@dataclass(frozen=True)
class Setting:
    """A candidate with a learning rate."""

    name: str
    lr: float


def prepared(base: RunSpec) -> RunSpec:
    """Return the run that all trials share: images set aside, and a rate that falls to zero unless told otherwise."""
    base = with_value(base, "method", {"kind": "sgd"})
    if base.data.selection is None:
        base = with_value(base, "data.selection", _SELECTION)
    return replace(base, schedule=Cosine()) if isinstance(base.schedule, Constant) else base


def first_settings(base: RunSpec, names: Sequence[str]) -> list[Setting]:
    """Return every candidate at a third of the usual learning rate, at the usual one, and at three times that."""
    return [Setting(name, round(base.optimizer.lr * rate, 10)) for name in names for rate in _RATES]


def unit_epochs(seconds_per_epoch: float, budget: float, jobs: int, num_candidates: int, most: int) -> int:
    """Return the epochs of the first stage, such that all stages together fit the budget.

    >>> unit_epochs(1.0, budget=600.0, jobs=1, num_candidates=5, most=100)
    12

    Args:
        seconds_per_epoch: of one run.
        budget: seconds for everything.
        jobs: runs side by side.
        num_candidates: how many methods are tried.
        most: epochs that a run usually has; the last stage has no more.
    """
    final = min(FINALISTS, num_candidates) * _FINAL_SEEDS
    weights = _LENGTHS[0] * num_candidates * len(_RATES) + _LENGTHS[1] * num_candidates + _LENGTHS[2] * final
    units = int(budget * jobs / (seconds_per_epoch * weights))
    if units < 1:
        least = math.ceil(seconds_per_epoch * weights / jobs / 60)
        raise SpecError(
            f"--budget {budget:.0f}s is too short: an epoch takes about {seconds_per_epoch:.0f}s here, and trials of "
            f"one to four epochs need about {least}m; give more time, or fewer images with --limit"
        )
    return max(1, min(units, most // _LENGTHS[2]))


def make_stage(
    base: RunSpec, number: int, units: int, settings: Sequence[Setting], name: str, about: str = ""
) -> Sweep:
    """Return the trials of a stage, counted from 0, as a sweep with a cell for every setting."""
    epochs = max(1, units * _LENGTHS[number])
    base = replace(base, epochs=epochs, evaluate_every=epochs)
    seeds = range(base.seed, base.seed + _FINAL_SEEDS) if number == len(_LENGTHS) - 1 else [base.seed]
    cells: list[Cell] = []
    for each in settings:
        expression: Mapping[str, Any] = {**read_methods(each.name)[each.name], "optimizer.lr": each.lr}
        (cell,) = plan(base, {each.name: expression}, list(seeds)).cells
        cells.append(replace(cell, x=each.lr) if number == 0 else cell)
    return Sweep(
        kind="comparison",
        name=name,
        title=f"What to train with on {base.data.name}",
        about=about or f"stage {number + 1} of {len(_LENGTHS)}, {epochs} epochs",
        cells=cells,
        seeds=tuple(seeds),
        base=base,
    )


def next_settings(scores: Mapping[Setting, float], number: int) -> list[Setting]:
    """Return what the next stage tries: the best rate of every candidate, and in the end the best candidates.

    Args:
        scores: results on the images set aside; settings that failed are not in it.
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
