"""Which method for noisy labels? Every method with its own learning rate, chosen on noisy labels, over many settings.

    python -m benchmarks.noisy_labels --out runs/noisy-labels --jobs 2      # hours; the same command goes on
    python -m benchmarks.noisy_labels --out runs/noisy-labels --only 'digits-*'
    python -m benchmarks.noisy_labels --table                               # what docs/results.md shows, from results/

Each setting is one ``deepbilevel compare --tune``. Its record is copied to ``results/noisy-labels`` as soon as there is
one, so that what is finished can be read. CIFAR-10 is looked for in ``DEEPBILEVEL_DATA``.
"""

import argparse
import fnmatch
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.record_tables import markdown_table
from deepbilevel_lab.drawing.figures import Dot, Figure, Panel, linear
from deepbilevel_lab.drawing.pictures import write_drawing
from deepbilevel_lab.drawing.svg import draw_figure
from deepbilevel_lab.records import SweepRecord, read_file
from deepbilevel_lab.sweeps.tuning import Tuned, tuned_methods

METHODS = (
    *("sgd", "weight-averaging", "label-smoothing", "mixup", "gce", "elr"),
    *("accumulation", "uniform", "bilevel", "bilevel+mixup"),
    *("cross-validated", "cross-validated-averaged"),
    *("cross-validated-averaged+gce", "cross-validated-averaged+weight-averaging"),
)
_DATA: Mapping[str, Sequence[str]] = {
    "digits": ["--data=digits", "--epochs=50", "--tune=optimizer.lr=0.03,0.1,0.3"],
    "cifarnet": [
        *("--data=cifar10", "--network=cifarnet", "--limit=5000", "--set=data.test_limit=5000"),
        *("--epochs=20", "--set=evaluate_every=2", "--tune=optimizer.lr=0.005,0.015,0.05"),
    ],
    # Random crops, flips and weight decay: what most people do.
    "resnet8": [
        *("--data=cifar10", "--network=preact_resnet8", "--limit=5000", "--set=data.test_limit=5000"),
        *("--epochs=20", "--set=evaluate_every=2", "--tune=optimizer.lr=0.03,0.1,0.3"),
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
_REAL_NOISE = ("worst", "aggre")  # human labels, of CIFAR-10 alone
SETTINGS: Mapping[str, Sequence[str]] = {
    f"{data}-{noise}": [*how, *given]
    for data, how in _DATA.items()
    for noise, given in _NOISE.items()
    if data != "digits" or noise not in _REAL_NOISE
}
RESULTS = Path(__file__).parents[1] / "results" / "noisy-labels"
PICTURES = Path(__file__).parents[1] / "docs" / "images"


def command(setting: str, out: Path, jobs: int, seeds: str) -> list[str]:
    """Return the command that runs a setting, or goes on with it."""
    common = ["--set=schedule=cosine", "--set=data.selection=0.1", "--set=threads=1", f"--methods={','.join(METHODS)}"]
    place = [f"--seeds={seeds}", f"--jobs={jobs}", f"--out={out / setting}", f"--name={setting}"]
    return [sys.executable, "-m", "deepbilevel", "compare", *SETTINGS[setting], *common, *place]


Methods = Mapping[str, Mapping[str, Tuned]]
"""How every method stands, by noise and name."""


def committed() -> dict[str, Methods]:
    """Return what the committed records say, by data set and network."""
    found: dict[str, Methods] = {}
    for data in _DATA:
        paths = {noise: RESULTS / f"{data}-{noise}.json" for noise in _NOISE}
        records = {noise: read_file(SweepRecord, path) for noise, path in paths.items() if path.is_file()}
        if records:
            found[data] = {
                noise: {each.row: each for each in tuned_methods(record)} for noise, record in records.items()
            }
    return found


def tables() -> str:
    """Return the committed records as Markdown: the last epoch for each data set and network, and the rest folded."""
    parts: list[str] = []
    for data, methods in committed().items():
        details = f"<details>\n<summary>{data}: epoch picked / best epoch; last epoch over the rates</summary>"
        parts += [f"**{data}**", _table(methods, _last), details, _table(methods, _details), "</details>"]
    return "\n\n".join(parts)


def _table(methods: Methods, entry: Callable[[Tuned], str]) -> str:
    rows = [[name, *(entry(each[name]) for each in methods.values())] for name in METHODS]
    return markdown_table(["method", *methods], rows)


def draw() -> list[Path]:
    """Draw the committed records, a picture per data set and network, and return the files."""
    files: list[Path] = []
    for data, methods in committed().items():
        figure = Figure(
            f"noisy-labels-{data}",
            f"{data}: every method with its own learning rate",
            "",
            METHODS,
            tuple(_panel(noise, each) for noise, each in methods.items()),
            keys=(("full", "last epoch"), ("hollow", "epoch picked by noisy labels")),
            shown=frozenset(range(len(METHODS))),
            lined=False,
        )
        files.append(PICTURES / f"noisy-labels-{data}.png")
        write_drawing(draw_figure(figure), files[-1])
    return files


def _panel(noise: str, methods: Mapping[str, Tuned]) -> Panel:
    """Return a dot plot with a line per method."""
    dots: list[Dot] = []
    for number, name in enumerate(METHODS):
        chosen = methods[name].chosen
        for metric, look in (("picked", "hollow"), ("test", "full")) if chosen is not None else ():
            figure = chosen.summary.get(metric) if chosen is not None else None
            if figure is not None and figure.mean is not None:
                deviation = figure.spread if metric == "test" else None
                dots.append(Dot(number, figure.mean, float(number), look, name, x_deviation=deviation))
    values = [dot.x + sign * (dot.x_deviation or 0.0) for dot in dots for sign in (-1, 1)]
    rows = tuple(range(len(METHODS)))
    scale = linear(values or [0.0, 100.0], within=(0.0, 100.0))
    return Panel(noise, f"{noise}: test accuracy (%)", "", scale, None, dots=tuple(dots), rows=rows, row_labels=METHODS)


def _last(tuned: Tuned) -> str:
    """Return the last epoch at the chosen rate, with its standard deviation over seeds."""
    if tuned.chosen is None:
        return "not finished"
    test = tuned.chosen.summary.get("test")
    spread = "" if test is None or test.spread is None else f" ± {test.spread:.1f}"
    done = sum(run.status == "done" for run in tuned.chosen.runs)
    fewer = "" if done == len(tuned.chosen.runs) else f" ({done} of {len(tuned.chosen.runs)} seeds)"
    return f"{_mean(tuned, 'test')}{spread}{fewer}"


def _details(tuned: Tuned) -> str:
    """Return the epoch picked on held-out images, the best one, and the range of the last one over the rates."""
    if tuned.range is None:
        return "not finished"
    low, high = tuned.range
    return f"{_mean(tuned, 'picked')} / {_mean(tuned, 'best')}; {low:.0f} to {high:.0f}"


def _mean(tuned: Tuned, name: str) -> str:
    figure = None if tuned.chosen is None else tuned.chosen.summary.get(name)
    return "-" if figure is None or figure.mean is None else f"{figure.mean:.1f}"


def main() -> None:
    """Run the settings that are wanted, one after another, and keep their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/noisy-labels"), help="the folder of the runs")
    parser.add_argument("--only", default="*", help="settings whose names match, as in 'cifarnet-*'")
    parser.add_argument("--jobs", type=int, default=1, help="how many runs side by side")
    parser.add_argument("--seeds", default="0-2", help="the first one chooses the learning rate")
    parser.add_argument("--list", action="store_true", help="show the commands and stop")
    parser.add_argument("--table", action="store_true", help="print what is committed, draw its pictures, and stop")
    given = parser.parse_args()
    if given.table:
        print(tables())
        draw()
        return
    for setting in fnmatch.filter(SETTINGS, given.only):
        words = command(setting, given.out, given.jobs, given.seeds)
        if given.list:
            print(" ".join(words[2:]))
            continue
        code = subprocess.run(words, check=False).returncode
        record = given.out / setting / f"sweep-{setting}.json"
        if record.is_file():
            RESULTS.mkdir(parents=True, exist_ok=True)
            shutil.copy(record, RESULTS / f"{setting}.json")
        if code == 130:  # interrupted, and saved
            sys.exit(code)


if __name__ == "__main__":
    main()
