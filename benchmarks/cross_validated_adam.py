"""Does Adam undo the cross-validated gradient? Digits, half of the labels wrong, groups of 8 x 16, one thread.

    python benchmarks/cross_validated_adam.py runs/adam results/adam.json

trains what is not yet in the folder of runs, a minute or so for each, then writes every run's numbers and prints a
table: mean and standard deviation over seeds. Train accuracy is on the labels as given: 50 is what can be had without
memorising wrong ones.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from deepbilevel.specs import with_value
from deepbilevel.training import default_spec, train

SEEDS = (0, 1, 2)
METHODS = {
    "mean gradient": {"kind": "uniform", "use_validation": True},
    "shrunken gradient": {"kind": "cross-validated"},
    "shrunken update": {"kind": "cross-validated", "shrink": "update"},
}
OPTIMIZERS = {"Adam": (0.003, 100), "SGD": (0.1, 50)}  # learning rate, epochs
EVALUATE_EVERY = 2
COLUMNS = ("last", "best", "train")


def measure(optimizer: str, method: str, seed: int, runs: Path) -> dict[str, Any]:
    """Return the results of one run, trained unless it is there already."""
    lr, epochs = OPTIMIZERS[optimizer]
    spec = default_spec("digits")
    for key, value in {
        "method": METHODS[method],
        "optimizer": optimizer,
        "optimizer.lr": lr,
        "noise": "uniform:0.5",
        "epochs": epochs,
        "evaluate_every": EVALUATE_EVERY,
        "seed": seed,
        "threads": 1,
        "device": "cpu",
    }.items():
        spec = with_value(spec, key, value)
    record = train(spec, out=runs, data_dir=runs)
    figures = {"last": record["final"]["test"], "best": record["best"]["test"], "train": record["final"]["train"]}
    return {
        "optimizer": optimizer,
        "lr": lr,
        "epochs": epochs,
        "method": method,
        "seed": seed,
        "id": spec.id,
        **figures,
    }


def main(runs: Path, results: Path) -> None:
    """Train, write the numbers and print the table."""
    measured = [measure(o, m, seed, runs) for o in OPTIMIZERS for seed in SEEDS for m in METHODS]
    results.write_text(
        json.dumps({"columns": "test last, test best, train on labels as given", "runs": measured}, indent=1)
    )
    print("| optimizer | Adam or SGD sees | test, last epoch | test, best epoch | train |\n|---|---|---|---|---|")
    for optimizer, (lr, epochs) in OPTIMIZERS.items():
        for method in METHODS:
            own = [run for run in measured if (run["optimizer"], run["method"]) == (optimizer, method)]
            cells = [
                f"{statistics.mean(numbers):.1f} ± {statistics.stdev(numbers):.1f}"
                for numbers in ([run[column] for run in own] for column in COLUMNS)
            ]
            print(f"| {optimizer}, lr {lr}, {epochs} epochs | {method} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
