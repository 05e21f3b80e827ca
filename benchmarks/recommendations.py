"""How good is the advice of `deepbilevel recommend`? Its choice beside the best candidate, by clean test labels.

    python -m benchmarks.recommendations --out runs/recommendations --jobs 2     # the same command goes on

For every setting, `recommend` sees noisy labels only. Then every candidate, at the rate that its first trials prefer,
is trained as long as the finalists were, with the same seeds, and tested on clean labels. The regret is the test
accuracy of the best candidate less that of the choice.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from deepbilevel_lab.advice.candidates import CANDIDATES
from deepbilevel_lab.replacement import write_text

SETTINGS: Mapping[str, Sequence[str]] = {
    f"digits-{noise or 'clean'}-seed{seed}": [
        "--data=digits",
        f"--seed={seed}",
        *([f"--noise={noise}"] if noise else []),
    ]
    for seed in (0, 10)
    for noise in ("uniform:0.4", "", "uniform:0.6", "pair:0.4", "uniform:0.2")
}
RESULTS = Path(__file__).parents[1] / "results" / "recommendations.json"
_COMMON = ["--threads=1", "--epochs=40"]


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
    """Ask for advice on a setting, and train what it did not."""
    place = [f"--out={out / name}", f"--jobs={jobs}", "--json"]
    said = _run("recommend", *SETTINGS[name], *_COMMON, f"--budget={budget}", *place)
    advice = json.loads(said[-1])
    record = json.loads(Path(advice["record"]).read_text())
    base, seeds = record["base"], record["seeds"]
    rates = {line["name"]: line["lr"] for line in advice["lines"]} | _other_rates(said, advice["lines"])
    options = [word for word in SETTINGS[name] if not word.startswith("--seed=")]
    same = [f"--epochs={base['epochs']}", "--threads=1", f"--set=evaluate_every={base['epochs']}"]
    same += [f"--set=data.selection={base['data']['selection']}", f"--set=schedule={json.dumps(base['schedule'])}"]
    methods = ",".join(f"{method}[optimizer.lr={rate}]" for method, rate in rates.items())
    chosen = [f"--methods={methods}", f"--seeds={','.join(map(str, seeds))}", f"--name={name.replace(':', '-')}"]
    compared = json.loads(_run("compare", *options, *same, *chosen, *place)[-1])
    tests = {cell["row"].partition("[")[0]: cell["summary"]["test"]["mean"] for cell in compared["cells"]}
    return Advised(advice["name"], advice["text"], tests)


def _other_rates(said: Sequence[str], lines: Sequence[Mapping[str, object]]) -> dict[str, float]:
    """Return the rate that the first stage preferred of candidates that were not among the finalists."""
    best: dict[str, tuple[float, float]] = {}
    for line in said:
        event = json.loads(line)
        if event["event"] != "done" or event.get("x") is None:
            continue
        score = event["final"]["selection"]
        if event["row"] not in best or score > best[event["row"]][0]:
            best[event["row"]] = (score, event["x"])
    finalists = {line["name"] for line in lines}
    return {name: best[name][1] for name in CANDIDATES if name in best and name not in finalists}


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
    parser.add_argument("--budget", default="10m", help="of each recommendation")
    given = parser.parse_args()
    found: dict[str, Advised] = {}
    for name in SETTINGS:
        found[name] = advised = evaluate(name, given.out, given.jobs, given.budget)
        print(f"{name}: {advised.choice}, regret {advised.regret:.1f}; {advised.text}", flush=True)
        near = sum(each.regret <= 0.5 for each in found.values())
        summary = {
            "within_half_a_point": near,
            "settings": len(found),
            "mean_regret": mean(each.regret for each in found.values()),
            "advice": {
                key: {"choice": each.choice, "regret": each.regret, "tests": each.tests, "text": each.text}
                for key, each in found.items()
            },
        }
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        write_text(RESULTS, json.dumps(summary, indent=1) + "\n")
    print(f"within half a point of the best: {near} of {len(found)}")


if __name__ == "__main__":
    main()
