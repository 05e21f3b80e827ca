"""Do Adam and AdamW undo the cross-validated gradient? Digits, half of the labels wrong, groups of 8 x 16, one thread.

    python benchmarks/cross_validated_adam.py runs/adam results/adam.json

trains what is not yet in the folder of runs, about half a minute for each of eighteen, then writes every run's numbers
and prints a table: mean and standard deviation over seeds. Train accuracy is on the labels as given: with about half
of them right, 50 is what can be had without memorising.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training import default_spec, train

SEEDS = (0, 1, 2)
OPTIMIZERS = ("Adam", "AdamW")
METHODS = {
    "mean gradient": {"kind": "uniform", "use_validation": True},
    "shrunken gradient": {"kind": "cross-validated"},
    "mean gradient, update shrunk": {"kind": "cross-validated", "shrink": "update"},
}
SETTING = {
    "optimizer.lr": 0.003,
    "noise": "uniform:0.5",
    "epochs": 100,
    "evaluate_every": 2,
    "threads": 1,
    "device": "cpu",
}
COLUMNS = ("last", "best", "train")


def measure(optimizer: str, method: str, seed: int, runs: Path) -> dict[str, Any]:
    """Return the results of one run, trained unless it is there already."""
    spec = default_spec("digits")
    for key, value in {"optimizer": optimizer, **SETTING, "method": METHODS[method], "seed": seed}.items():
        spec = with_value(spec, key, value)
    record = train(spec, out=runs, data_dir=runs)
    assert record.final is not None and record.best is not None  # noqa: PT018  # a finished run has both
    last, best, train_score = record.final.test, record.best.test, record.final.train
    return {"optimizer": optimizer, "method": method, "seed": seed, "last": last, "best": best, "train": train_score}


def main(runs: Path, results: Path) -> None:
    """Train, write the numbers and print the table."""
    measured = [
        measure(optimizer, method, seed, runs) for optimizer in OPTIMIZERS for seed in SEEDS for method in METHODS
    ]
    results.write_text(json.dumps({"setting": SETTING, "runs": measured}, indent=1) + "\n")
    print("| optimizer and what it gets | test, last epoch | test, best epoch | train |\n|---|---|---|---|")
    for optimizer in OPTIMIZERS:
        for method in METHODS:
            own = [run for run in measured if (run["optimizer"], run["method"]) == (optimizer, method)]
            columns = [[run[column] for run in own] for column in COLUMNS]
            cells = [f"{statistics.mean(column):.1f} ± {statistics.stdev(column):.1f}" for column in columns]
            print(f"| {optimizer}, {method} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
