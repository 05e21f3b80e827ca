"""Methods side by side: the runs that compare them fairly, and the record of what came of them.

Fair means: the same images, wrong labels, augmentation, initial weights, number of image visits and evaluations for all
methods of a seed. This module decides that; it does not run anything and does not know what is printed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from deepbilevel.replacement import write_text
from deepbilevel.specs import SpecError, spec_id, to_plain, with_value
from deepbilevel.sweeps.trials import Outcome, Trial, Watcher
from deepbilevel.training.comparison import Figure
from deepbilevel.training.record import environment
from deepbilevel.training.spec import RunSpec

FORMAT = 1
FIGURES = ("test", "best", "train", "train_clean", "gap", "seconds")
"""``test`` and the training figures are those of the last epoch; ``best`` was chosen by looking at it."""
_HELD_EQUAL = (
    *("data", "noise", "epochs", "seed", "evaluate_every", "network.name", "network.weights"),
    *("device", "precision", "threads"),
)


@dataclass(frozen=True)
class Comparison:
    """What is compared; :func:`plan` makes it.

    Attributes:
        base: what all runs have in common, as a run of plain SGD.
        methods: the settings of each method, by its name as it was written.
        specs: the runs of each method, one per seed.
    """

    base: RunSpec
    methods: Mapping[str, Mapping[str, Any]]
    seeds: Sequence[int]
    specs: Mapping[str, Sequence[RunSpec]]

    @property
    def id(self) -> str:
        """The name of exactly this comparison."""
        return spec_id({"base": self.base, "methods": self.methods, "seeds": list(self.seeds)})

    def trials(self) -> list[Trial]:
        """Return all runs, seed by seed: after the first seed there is something to look at."""
        return [
            Trial(f"{name}, seed {seed}", self.specs[name][number], {"method": name, "seed": seed})
            for number, seed in enumerate(self.seeds)
            for name in self.methods
        ]

    def file(self, out: Path, ending: str) -> Path:
        """Return where the comparison is written, as ``json`` or ``png``."""
        return out / f"compare-{self.id}.{ending}"


def plan(base: RunSpec, methods: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]) -> Comparison:
    """Return the comparison, or refuse it, naming the method that cannot be.

    Args:
        base: what all runs have in common; its method is left aside.
        methods: dotted keys and values by name, as :func:`~deepbilevel.sweeps.expressions.read_methods` returns them.
        seeds: of which every method has a run each.
    """
    if not methods or not seeds:
        raise SpecError("a comparison needs at least one method and one seed")
    try:
        base = with_value(base, "method", {"kind": "sgd"})
    except ValueError as error:
        raise SpecError(f"{error}; give it to the methods it is for, as in bilevel[group.holdout=0.1]") from error
    base = replace(base, seed=seeds[0])
    specs: dict[str, list[RunSpec]] = {}
    for name, settings in methods.items():
        spec = _apply(base, name, settings)
        specs[name] = [replace(spec, seed=seed) for seed in seeds]
    return Comparison(base, methods, tuple(seeds), specs)


def _apply(base: RunSpec, name: str, settings: Mapping[str, Any]) -> RunSpec:
    for key in settings:
        if any(key == held or key.startswith(f"{held}.") for held in _HELD_EQUAL) or key == "network":
            raise SpecError(f"method {name!r}: {key} is the same for all methods of a comparison; use --set {key}=...")
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


def make_comparison_record(comparison: Comparison, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return everything there is to say about a comparison, as it stands."""
    by_id = {outcome.trial.id: outcome for outcome in outcomes}
    methods: list[dict[str, Any]] = []
    for name, settings in comparison.methods.items():
        runs = [_run(by_id[spec.id], spec) for spec in comparison.specs[name]]
        summary = _summarize([run["figures"] for run in runs if run["status"] == "done"])
        methods.append({"name": name, "settings": dict(settings), "runs": runs, "summary": summary})
    metrics = {outcome.record["metric"] for outcome in outcomes if outcome.record is not None}
    return {
        "format": FORMAT,
        "id": comparison.id,
        "updated": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "base": to_plain(comparison.base),
        "seeds": list(comparison.seeds),
        "metric": min(metrics, default=None),
        "methods": methods,
        "environment": environment(),
    }


def _run(outcome: Outcome, spec: RunSpec) -> dict[str, Any]:
    record = outcome.record
    return {
        "seed": spec.seed,
        "id": spec.id,
        "folder": f"{spec.name}-{spec.id}",
        "status": outcome.status,
        "error": outcome.error,
        "figures": None if record is None else _figures(record),
        "images_seen": None if record is None else record["steps"] * spec.group.size,
    }


def _figures(record: Mapping[str, Any]) -> dict[str, float | None]:
    final = record["final"]
    return {
        "test": final["test"],
        "best": record["best"]["test"],
        "train": final["train"],
        "train_clean": final.get("train_clean"),
        "gap": final["gap"],
        "seconds": record["seconds"]["wall"],
    }


def _summarize(runs: Sequence[Mapping[str, float | None]]) -> dict[str, dict[str, float | None] | None]:
    """Return mean and standard deviation of every figure over finished runs, None where there is none."""
    summary: dict[str, dict[str, float | None] | None] = {}
    for name in FIGURES:
        values = [value for run in runs if (value := run[name]) is not None]
        spread = stdev(values) if len(values) > 1 else None
        summary[name] = asdict(Figure(mean(values), spread)) if values else None
    return summary


class Recorder(Watcher):
    """Keeps the record of a comparison in its file up to date.

    Attributes:
        record: as it was last written.
    """

    def __init__(self, comparison: Comparison, out: Path) -> None:
        self._comparison = comparison
        self.path = comparison.file(out, "json")
        self.record: dict[str, Any] = {}

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        """See :class:`Watcher`."""
        self.record = make_comparison_record(self._comparison, outcomes)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps(self.record, indent=1) + "\n")
