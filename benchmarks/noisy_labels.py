"""Which method for noisy labels? Every method with its own learning rate, chosen on noisy labels, over many settings.

    python -m benchmarks.noisy_labels --out runs/noisy-labels --jobs 2      # hours; the same command goes on
    python -m benchmarks.noisy_labels --out runs/noisy-labels --only 'digits-*'
    python -m benchmarks.noisy_labels --out runs/noisy-labels --only '*-combined'
    python -m benchmarks.noisy_labels --table                               # what docs/results.md shows, from results/

Each setting is three ``deepbilevel compare --tune``: the methods of most interest, the others, and combinations.
Records are copied to ``results/noisy-labels`` as soon as there are any, so that what is finished can be read. CIFAR-10
is looked for in ``DEEPBILEVEL_DATA``.
"""

import argparse
import fnmatch
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t as student

from benchmarks.keeping import INTERRUPTED, run_and_keep
from benchmarks.record_tables import PICTURES, RESULTS, markdown_table
from deepbilevel_lab.drawing.figures import Dot, Figure, Panel, linear
from deepbilevel_lab.drawing.pictures import write_drawing
from deepbilevel_lab.drawing.svg import draw_figure
from deepbilevel_lab.records import SweepRecord, read_file
from deepbilevel_lab.sweeps.tuning import Tuned, tuned_methods

PARTS: Mapping[str, Sequence[str]] = {
    "": (
        *("sgd", "weight-averaging", "mixup", "gce", "elr"),
        *("uniform", "bilevel", "cross-validated", "cross-validated-averaged"),
    ),
    "-more": (
        *("label-smoothing", "accumulation", "bilevel+mixup"),
        *("cross-validated-averaged+gce", "cross-validated-averaged+weight-averaging"),
    ),
    "-combined": ("mixup+weight-averaging", "elr+weight-averaging", "cross-validated-averaged+elr"),
}
"""Methods by the end of the name of their record."""
METHODS = tuple(method for methods in PARTS.values() for method in methods)
_DATA: Mapping[str, Sequence[str]] = {
    "digits": ["--data=digits", "--epochs=50", "--tune=optimizer.lr=0.03,0.1,0.3"],
    "cifarnet": [
        *("--data=cifar10", "--network=cifarnet", "--limit=5000", "--set=data.test_limit=5000"),
        *("--epochs=20", "--set=evaluate_every=4", "--tune=optimizer.lr=0.005,0.015,0.05"),
    ],
    # Random crops, flips and weight decay: what most people do.
    "resnet8": [
        *("--data=cifar10", "--network=preact_resnet8", "--limit=5000", "--set=data.test_limit=5000"),
        *("--epochs=20", "--set=evaluate_every=4", "--tune=optimizer.lr=0.03,0.1,0.3"),
    ],
}
_NOISE: Mapping[str, Sequence[str]] = {
    "uniform40": ["--noise=uniform:0.4"],
    "clean": [],
    "worst": ["--set=data.labels=worst"],
    "uniform60": ["--noise=uniform:0.6"],
    "pair40": ["--noise=pair:0.4"],
    "uniform20": ["--noise=uniform:0.2"],
    "aggre": ["--set=data.labels=aggre"],
}
SHOWN: Mapping[str, str] = {
    "clean": "clean",
    "uniform20": "20 % uniform",
    "uniform40": "40 % uniform",
    "uniform60": "60 % uniform",
    "pair40": "40 % pairs",
    "aggre": "9 % by people",
    "worst": "40 % by people",
}
"""The order in which they are shown, and what they are called; they are run in that of their importance."""
_REAL_NOISE = ("worst", "aggre")  # human labels, of CIFAR-10 alone
SETTINGS: Mapping[str, Sequence[str]] = {
    f"{data}-{noise}": [*how, *given]
    for data, how in _DATA.items()
    for noise, given in _NOISE.items()
    if data != "digits" or noise not in _REAL_NOISE
}
_BASELINE = "sgd"
_TITLES: Mapping[str, str] = {
    "digits": "Digits",
    "cifarnet": "5,000 images of CIFAR-10, CifarNet",
    "resnet8": "5,000 images of CIFAR-10, PreAct ResNet-8 with augmentation",
}
_RECORDS = RESULTS / "noisy-labels"


def command(setting: str, methods: Sequence[str], name: str, out: Path, jobs: int, seeds: str) -> list[str]:
    """Return the command that runs methods on a setting, or goes on with them; ``name`` is that of their record."""
    common = ["--set=schedule=cosine", "--set=data.selection=0.1", "--set=threads=1", f"--methods={','.join(methods)}"]
    place = [f"--seeds={seeds}", f"--jobs={jobs}", f"--out={out}", f"--name={name}"]
    return [sys.executable, "-m", "deepbilevel", "compare", *SETTINGS[setting], *common, *place]


Methods = Mapping[str, Tuned]
"""How every method stands that was tried, by name."""


def committed() -> dict[str, dict[str, Methods]]:
    """Return what the committed records say, by data set with network, and noise."""
    found: dict[str, dict[str, Methods]] = {}
    for data in _DATA:
        by_noise: dict[str, Methods] = {}
        for noise in SHOWN:
            paths = [_RECORDS / f"{data}-{noise}{part}.json" for part in PARTS]
            records = [read_file(SweepRecord, path) for path in paths if path.is_file()]
            if paths[0].is_file():  # it has what the others are compared with
                by_noise[noise] = {each.row: each for record in records for each in tuned_methods(record)}
        if by_noise:
            found[data] = by_noise
    return found


def tables() -> str:
    """Return the committed records as Markdown: the last epoch for each data set and network, and the rest folded."""
    parts: list[str] = []
    for data, by_noise in committed().items():
        parts += [f"**{_TITLES[data]}**", _table(by_noise, lambda tuned, _: last_epoch(tuned))]
        for title, entry in _FOLDED.items():
            summary = f"<details>\n<summary>{_TITLES[data]}: {title}</summary>"
            parts += [summary, _table(by_noise, entry), "</details>"]
    return "\n\n".join(parts)


def _table(by_noise: Mapping[str, Methods], entry: Callable[[Tuned, Tuned], str]) -> str:
    tried = [name for name in METHODS if any(name in methods for methods in by_noise.values())]
    rows = [
        [name, *(entry(each[name], each[_BASELINE]) if name in each else "-" for each in by_noise.values())]
        for name in tried
    ]
    return markdown_table(["method", *(SHOWN[noise] for noise in by_noise)], rows)


def draw() -> None:
    """Draw how far every method ends above the baseline, a picture per data set and network."""
    for data, by_noise in committed().items():
        gains = {
            noise: {
                name: mean(found)
                for name, each in methods.items()
                if name != _BASELINE and (found := _gains(each, methods[_BASELINE]))
            }
            for noise, methods in by_noise.items()
        }
        tried = {name for of_methods in gains.values() for name in of_methods}
        # By the mean over all kinds of noise; what was not tried on some cannot be compared by it, and comes last.
        means = {name: [found[name] for found in gains.values() if name in found] for name in tried}
        ranked = sorted(means, key=lambda name: (-len(means[name]), -mean(means[name])))
        dots = tuple(
            Dot(series, found[name], float(row), "full", f"{name}, {SHOWN[noise]}: {found[name]:+.1f}")
            for series, (noise, found) in enumerate(gains.items())
            for row, name in enumerate(ranked)
            if name in found
        )
        x = linear([dot.x for dot in dots])
        title = f"Test accuracy of the last epoch above {_BASELINE} (points)"
        rows = (None,) * len(ranked)
        panel = Panel("gain", title, "", x, None, dots=dots, rows=rows, row_labels=tuple(ranked))
        figure = Figure(
            f"noisy-labels-{data}",
            f"{_TITLES[data]}: every method with its own learning rate, mean over the seeds",
            "",
            tuple(SHOWN[noise] for noise in gains),
            (panel,),
            shown=frozenset(range(len(gains))),
            lined=False,
        )
        write_drawing(draw_figure(figure), PICTURES / f"{figure.slug}.png")


def last_epoch(tuned: Tuned) -> str:
    """Return the last epoch at the chosen rate, with its standard deviation over seeds."""
    if tuned.chosen is None:
        return "not finished"
    test = tuned.chosen.summary.get("test")
    spread = "" if test is None or test.spread is None else f" ± {test.spread:.1f}"
    done = sum(run.status == "done" for run in tuned.chosen.runs)
    fewer = "" if done == len(tuned.chosen.runs) else f" ({done} of {len(tuned.chosen.runs)} seeds)"
    return f"{_mean(tuned, 'test')}{spread}{fewer}"


def _details(tuned: Tuned, _: Tuned) -> str:
    """Return the epoch picked on held-out images, the best one, and the range of the last one over the rates."""
    if tuned.range is None:
        return "not finished"
    low, high = tuned.range
    return f"{_mean(tuned, 'picked')} / {_mean(tuned, 'best')}; {low:.0f} to {high:.0f}"


def _gain(tuned: Tuned, baseline: Tuned) -> str:
    """Return how much the last epoch is above that of the baseline, pairing the runs of a seed."""
    differences = _gains(tuned, baseline)
    if tuned is baseline or len(differences) < 2:
        return "-"
    # Few seeds: the quantile of the normal distribution would make the interval half as wide as it is.
    quantile = float(student.ppf(0.975, len(differences) - 1))
    half = quantile * stdev(differences) / len(differences) ** 0.5
    center = mean(differences)
    return f"{center:+.1f} ({center - half:+.1f} to {center + half:+.1f})"


def _gains(tuned: Tuned, baseline: Tuned) -> list[float]:
    ours, theirs = _by_seed(tuned), _by_seed(baseline)
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def _by_seed(tuned: Tuned) -> dict[int, float]:
    runs = () if tuned.chosen is None else tuned.chosen.runs
    return {run.seed: test for run in runs if run.status == "done" and (test := run.figure("test")) is not None}


_FOLDED: Mapping[str, Callable[[Tuned, Tuned], str]] = {
    "test accuracy of the epoch picked on held-out labels / of the best; range of the last over the rates, seed 0": (
        _details
    ),
    f"last epoch less that of {_BASELINE}, paired by seed (95 % interval)": _gain,
}


def _mean(tuned: Tuned, name: str) -> str:
    figure = None if tuned.chosen is None else tuned.chosen.summary.get(name)
    return "-" if figure is None or figure.mean is None else f"{figure.mean:.1f}"


def main() -> None:
    """Run the settings that are wanted, one after another, and keep their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/noisy-labels"), help="the folder of the runs")
    parser.add_argument("--only", default="*", help="records whose names match, as in 'cifarnet-*'")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs side by side")
    parser.add_argument("--seeds", default="0-2", help="the first one chooses the learning rate")
    parser.add_argument("--list", action="store_true", help="show the commands and stop")
    parser.add_argument("--table", action="store_true", help="print what is committed, draw its pictures, and stop")
    given = parser.parse_args()
    if given.table:
        print(tables())
        draw()
        return
    parts = {f"{setting}{part}": (setting, part) for setting in SETTINGS for part in PARTS}
    codes = [0]
    for name in fnmatch.filter(parts, given.only):
        setting, part = parts[name]
        words = command(setting, PARTS[part], name, given.out / setting, given.jobs, given.seeds)
        if given.list:
            print(" ".join(words[2:]))
            continue
        codes.append(run_and_keep(words, given.out / setting / f"sweep-{name}.json", _RECORDS / f"{name}.json"))
        if codes[-1] == INTERRUPTED:
            break
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
