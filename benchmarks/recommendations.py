"""How good is the advice of `deepbilevel recommend`? Its choice beside the best candidate, by clean test labels.

    python -m benchmarks.recommendations --jobs 2                     # an hour and a half of a core; goes on
    python -m benchmarks.recommendations --only 'cifar10-*'           # part of it

For every setting, `recommend` sees noisy labels only. Its trials are then compared on clean test labels, every
candidate at the rate that was best on noisy ones with the first seed. The regret is the test accuracy of the best
candidate less that of the choice. Every setting that is finished replaces its part of the record.
"""

import argparse
import fnmatch
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from deepbilevel_lab.replacement import write_text

_DIGITS: Mapping[str, Sequence[str]] = {
    f"digits-{noise or 'clean'}-seed{seed}": [
        *("--data=digits", "--threads=1", "--epochs=40"),
        f"--seed={seed}",
        *([f"--noise={noise}"] if noise else []),
    ]
    for seed in (0, 10)
    for noise in ("uniform:0.4", "", "uniform:0.6", "pair:0.4", "uniform:0.2")
}
_CIFAR = ("--data=cifar10", "--network=cifarnet", "--limit=2500", "--set=data.test_limit=5000", "--threads=1")
SETTINGS: Mapping[str, Sequence[str]] = {
    **_DIGITS,
    "cifar10-worst": [*_CIFAR, "--epochs=20", "--set=data.labels=worst"],
    "cifar10-uniform:0.4": [*_CIFAR, "--epochs=20", "--noise=uniform:0.4"],
}
RESULTS = Path(__file__).parents[1] / "results" / "recommendations.json"


@dataclass(frozen=True)
class Advised:
    """What was chosen, and the test accuracy of every candidate."""

    choice: str
    text: str
    tests: dict[str, float]

    @property
    def regret(self) -> float:
        """Points that the choice is worse than the best candidate."""
        return max(self.tests.values()) - self.tests[self.choice]


def evaluate(name: str, out: Path, jobs: int, budget: str) -> Advised:
    """Ask for advice on a setting, and look up how its trials did on clean labels."""
    place = [f"--out={out / name}", f"--jobs={jobs}", "--json"]
    events = [json.loads(line) for line in _run("recommend", *SETTINGS[name], f"--budget={budget}", *place)]
    tests: dict[str, dict[int, float]] = {}
    for event in events:
        if event["event"] == "done" and event.get("x") is None:  # after the first stage, which chooses rates
            tests.setdefault(event["row"], {})[event["seed"]] = event["final"]["test"]
    seeds = set.intersection(*(set(of_seeds) for of_seeds in tests.values()))  # finalists have more
    means = {method: mean(of_seeds[seed] for seed in seeds) for method, of_seeds in tests.items()}
    return Advised(events[-1]["name"], events[-1]["text"], means)


def table() -> str:
    """Return the committed record as Markdown."""
    committed = _committed()
    lines = ["| setting | recommended | its test accuracy | best candidate | regret |", "|---|---|---|---|---|"]
    for name, each in committed.items():
        advised = Advised(**each)
        best = max(advised.tests, key=advised.tests.__getitem__)
        words = [f"{advised.tests[advised.choice]:.1f}", f"{_short(best)}, {advised.tests[best]:.1f}"]
        lines.append(f"| {name} | {_short(advised.choice)} | {' | '.join(words)} | {advised.regret:.1f} |")
    return "\n".join([*lines, "", *(_summary(data, committed) for data in ("digits", "cifar10"))])


def _summary(data: str, advice: Mapping[str, Mapping[str, Any]]) -> str:
    regrets = [Advised(**each).regret for name, each in advice.items() if name.startswith(data)]
    near = sum(regret <= 0.5 for regret in regrets)
    within = f"within half a point of the best in {near} of {len(regrets)} settings"
    return f"- {data}: {within}; mean regret {mean(regrets):.1f} points."


def _short(method: str) -> str:
    return method.removesuffix("+weight-averaging") or method


def _run(*words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-m", "deepbilevel", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"deepbilevel {' '.join(words)} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout.splitlines()


def main() -> None:
    """Evaluate the settings, print how each ended, and keep the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/recommendations"), help="the folder of the runs")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs side by side")
    parser.add_argument("--budget", default="60m", help="of each recommendation")
    parser.add_argument("--only", default="*", help="settings whose names match, as in 'cifar10-*'")
    given = parser.parse_args()
    for name in fnmatch.filter(SETTINGS, given.only):
        advised = evaluate(name, given.out, given.jobs, given.budget)
        print(f"{name}: {advised.choice}, regret {advised.regret:.1f}; {advised.text}", flush=True)
        advice = {**_committed(), name: asdict(advised)}
        in_order = {key: advice[key] for key in SETTINGS if key in advice}
        write_text(RESULTS, json.dumps({"advice": in_order}, indent=1) + "\n")


def _committed() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text())["advice"] if RESULTS.is_file() else {}


if __name__ == "__main__":
    main()
