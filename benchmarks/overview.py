"""Where it helps and where not: one row per setting, the last epoch of every measurement side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from benchmarks import memorisation, noisy_labels, paper_size
from benchmarks.record_tables import RESULTS, markdown_table
from deepbilevel_lab.records import SweepRecord, read_file

_COLUMNS: Mapping[str, str] = {
    "sgd": "SGD",
    "uniform": "equal weights",
    "bilevel": "bilevel",
    "cross-validated": "cross-validated",
}
_OTHERS = (
    *("weight-averaging", "label-smoothing", "mixup", "gce", "elr"),
    *("mixup+weight-averaging", "elr+weight-averaging", "and-mask", "mentornet", "bootstrap-soft"),
)
_PAPERS_NAMES: Mapping[str, str] = {
    "SGD": "sgd",
    "Bilevel": "bilevel",
    "Zhang et al. (mixup)": "mixup",
    "Jiang et al. (MentorNet)": "mentornet",
    "Label smoothing 0.1": "label-smoothing",
    "Reed et al.": "bootstrap-soft",
}
_DATA: Mapping[str, str] = {"digits": "digits", "cifarnet": "5,000", "resnet8": "5,000, ResNet"}
_ONE_RATE: Mapping[str, str] = {
    "clean": "clean",
    "uniform-20": "20 % uniform",
    "uniform-50": "50 % uniform",
    "worst": noisy_labels.SHOWN["worst"],
}
_PAPER = "the paper's"

Figures = Mapping[str, float]
"""Test accuracy of the last epoch by method."""


def table() -> str:
    """Return the settings with the methods of the house, and the best of the others."""
    rows = [*_tuned(), *_untuned(), *_large(), *_memorising(), _compared()]
    head = ["images", "labels", "recipe", "seeds", *_COLUMNS.values(), "best of the others"]
    return markdown_table(head, rows)


def _row(setting: Sequence[str], figures: Figures, unfinished: frozenset[str] = frozenset()) -> list[str]:
    marks = {name: f"{figure:.1f}{'*' if name in unfinished else ''}" for name, figure in figures.items()}
    others = [name for name in figures if name in _OTHERS]
    best = max(others, key=lambda name: figures[name], default=None)
    last = "-" if best is None else f"{best} {marks[best]}"
    return [*setting, *(marks.get(name, "-") for name in _COLUMNS), last]


def _tuned() -> list[list[str]]:
    rows: list[list[str]] = []
    for data, by_noise in noisy_labels.committed().items():
        for noise in by_noise:
            cells = {name: each.chosen for name, each in by_noise[noise].items() if each.chosen is not None}
            tests = {name: cell.summary.get("test") for name, cell in cells.items()}
            figures = {name: test.mean for name, test in tests.items() if test is not None and test.mean is not None}
            if not cells:  # no method has been tried at all its rates yet
                continue
            seeds = min(sum(run.status == "done" for run in cell.runs) for cell in cells.values())
            rows.append(_row((_DATA[data], noisy_labels.SHOWN[noise], "tuned", str(seeds)), figures))
    return rows


def _untuned() -> list[list[str]]:
    rows: list[list[str]] = []
    for name, noise in _ONE_RATE.items():
        path = RESULTS / "cifar10-methods" / f"sweep-cifar10-{name}.json"
        rows.append(_row(("5,000", noise, "one rate", "1"), _of_sweep(read_file(SweepRecord, path))))
    return rows


def _large() -> list[list[str]]:
    runs = paper_size.committed()
    rows: list[list[str]] = []
    for images in sorted({images for _, images in runs}):
        here = {method: run for (method, number), run in runs.items() if number == images}
        figures = {
            method: run.final.test
            for method, run in here.items()
            if run.final is not None and run.final.test is not None
        }
        unfinished = frozenset(method for method, run in here.items() if run.status != "done")
        rows.append(_row((f"{images:,}", "50 % uniform", _PAPER, "1"), figures, unfinished))
    return rows


def _memorising() -> list[list[str]]:
    record = memorisation.committed()
    figures = {} if record is None else _of_sweep(record)
    if record is None or not figures:
        return []
    renamed = {memorisation.SHORT.get(name, name): figure for name, figure in figures.items()}
    seeds = min(done for cell in record.cells if (done := sum(run.status == "done" for run in cell.runs)))
    return [_row(("5,000, Inception", "50 % uniform", "no augmentation", str(seeds)), renamed)]


def _compared() -> list[str]:
    """Return the paper's comparison at 40 %, reduced."""
    record = read_file(SweepRecord, RESULTS / "compact" / "sweep-comparison-40-compact.json")
    figures = _of_sweep(replace(record, cells=tuple(cell for cell in record.cells if cell.column == "CIFAR-10")))
    known = {_PAPERS_NAMES[name]: figure for name, figure in figures.items() if name in _PAPERS_NAMES}
    return _row(("5,000, ResNet", noisy_labels.SHOWN["uniform40"], "augmentation", "1"), known)


def _of_sweep(record: SweepRecord) -> Figures:
    tests = {cell.row: cell.summary.get("test") for cell in record.cells}
    return {name: test.mean for name, test in tests.items() if test is not None and test.mean is not None}
