"""Section 4.1: the table and the figure of ablations, on CIFAR-10, clean and with half of the labels wrong."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from deepbilevel_lab.training.spec import GroupSpec, RunSpec
from deepbilevel_paper.experiment import Cell, Experiment
from deepbilevel_paper.published import TABLE_1
from deepbilevel_paper.recipes import BILEVEL, NETWORK_NAMES, SGD, ablation

_NOISE_RATES = {"clean": 0.0, "50 % noise": 0.5}

_VALIDATION_RATIOS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
_NUMS_OF_BATCHES = (2, 4, 8, 16, 32)
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
_MUS = (0.0001, 0.001, 0.01, 0.1, 1.0)

_ROWS: dict[str, Callable[[RunSpec], RunSpec]] = {
    "SGD": lambda spec: replace(spec, method=SGD, shared_dropout=False),
    "Baseline": lambda spec: spec,
    "a) no L1": lambda spec: replace(spec, method=replace(BILEVEL, normalize=False)),
    "b) weights per layer": lambda spec: replace(spec, method=replace(BILEVEL, per_layer=True)),
    "c) sampling": lambda spec: replace(spec, group=replace(spec.group, matched=False)),
    "d) dropout": lambda spec: replace(spec, shared_dropout=False),
}


def _columns() -> Iterable[tuple[str, RunSpec]]:
    for network, shown in NETWORK_NAMES.items():
        for noise, rate in _NOISE_RATES.items():
            yield f"{shown}, {noise}", ablation(network, rate)


def _table() -> list[Cell]:
    return [Cell(row, column, change(spec)) for row, change in _ROWS.items() for column, spec in _columns()]


def _figure(values: Iterable[float], change: Callable[[RunSpec, float], RunSpec]) -> Callable[[], list[Cell]]:
    def plan() -> list[Cell]:
        return [Cell("Bilevel", column, change(spec, x), x=x) for column, spec in _columns() for x in values]

    return plan


def _with_ratio(spec: RunSpec, ratio: float) -> RunSpec:
    return replace(spec, group=replace(spec.group, holdout=ratio or None))


def _with_num_batches(spec: RunSpec, num_batches: float) -> RunSpec:
    # The group stays as large, so there are as many steps and as many visits.
    size = spec.group.size
    return replace(spec, group=GroupSpec(num_batches=int(num_batches), batch_size=size // int(num_batches)))


def _with_batch_size(spec: RunSpec, batch_size: float) -> RunSpec:
    return replace(spec, group=replace(spec.group, batch_size=int(batch_size)))


def _with_mu(spec: RunSpec, mu: float) -> RunSpec:
    return replace(spec, method=replace(BILEVEL, mu=mu))


_WHERE = "section 4.1, the figure of ablations, row {}"
_VALUES = "the text does not name the values along x; these are ours"

ABLATIONS = (
    Experiment(
        "table1",
        "Ablations on CIFAR-10",
        where="section 4.1, table 1",
        varies="one choice of the method per row",
        plan=_table,
        published=TABLE_1,
    ),
    Experiment(
        "figure-validation-ratio",
        "Images that only validate",
        where=_WHERE.format(1),
        varies="the share of the training images that only ever validates; 0 is the paper's dashed line",
        plan=_figure(_VALIDATION_RATIOS, _with_ratio),
        assumes=(_VALUES,),
    ),
    Experiment(
        "figure-num-batches",
        "Mini-batches that are compared",
        where=_WHERE.format(2),
        varies="k, the number of mini-batches in a group of 128 images",
        plan=_figure(_NUMS_OF_BATCHES, _with_num_batches),
    ),
    Experiment(
        "figure-batch-size",
        "Images in a mini-batch",
        where=_WHERE.format(3),
        varies="the images in each of 8 mini-batches",
        plan=_figure(_BATCH_SIZES, _with_batch_size),
        assumes=(
            _VALUES,
            "'we adjust the learning rate schedule accordingly': smaller mini-batches make more steps, so what counts "
            "steps is stretched. Ours counts epochs: the rate starts at the same value and falls by 0.95 after every "
            "epoch, however many steps that is, and every image is seen as often as in the baseline",
        ),
    ),
    Experiment(
        "figure-mu",
        "The parameter mu",
        where=_WHERE.format(4),
        varies="mu, which evens out the weights",
        plan=_figure(_MUS, _with_mu),
        assumes=(_VALUES,),
    ),
)
