"""What the curves of a demonstration say, as numbers and as sentences. Knows no training and no screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from deepbilevel_lab.demo.training import METHODS, Curve, Method

NAMES: dict[Method, str] = {
    "sgd": "SGD",
    "uniform": "uniform weights (control)",
    "bilevel": "bilevel",
}


@dataclass(frozen=True)
class Figure:
    """A mean and its standard deviation over seeds."""

    mean: float
    spread: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.spread:.1f}"


@dataclass(frozen=True)
class Row:
    """One method over all seeds; accuracies in percent."""

    method: Method
    noisy_train: Figure
    test_last: Figure
    test_best: Figure
    seconds: Figure


def summarize(curves: Sequence[Curve]) -> dict[Method, Row]:
    """Reduce curves to one row per method."""
    rows: dict[Method, Row] = {}
    for method in METHODS:
        own = [curve for curve in curves if curve.method == method]
        rows[method] = Row(
            method,
            noisy_train=_figure([curve.noisy_train[-1] for curve in own]),
            test_last=_figure([curve.test[-1] for curve in own]),
            test_best=_figure([max(curve.test) for curve in own]),
            seconds=_figure([curve.seconds for curve in own]),
        )
    return rows


def conclude(rows: dict[Method, Row], noise_rate: float) -> str:
    """Say what happened, whichever way it went."""
    sgd, uniform, bilevel = (rows[method] for method in METHODS)
    return (
        f"With {noise_rate:.0%} of the labels wrong, SGD reproduced {sgd.noisy_train.mean:.0f}% of the noisy labels "
        f"and went from {sgd.test_best.mean:.1f}% test accuracy at its best epoch to {sgd.test_last.mean:.1f}% at its "
        f"last; bilevel reproduced {bilevel.noisy_train.mean:.0f}% and went from {bilevel.test_best.mean:.1f}% to "
        f"{bilevel.test_last.mean:.1f}%. At the last epoch bilevel is {_difference(bilevel.test_last, sgd.test_last)} "
        f"SGD and {_difference(bilevel.test_last, uniform.test_last)} the control, uniform weights over the same "
        f"groups. At the best epoch, which nobody can pick without clean labels, it is "
        f"{_difference(bilevel.test_best, sgd.test_best)} SGD."
    )


def _difference(ours: Figure, theirs: Figure) -> str:
    gap = ours.mean - theirs.mean
    direction = "above" if gap >= 0 else "below"
    doubt = " (no more than the spread over seeds)" if abs(gap) <= max(ours.spread, theirs.spread) else ""
    return f"{abs(gap):.1f} points{doubt} {direction}"


def _figure(values: Sequence[float]) -> Figure:
    return Figure(mean(values), stdev(values) if len(values) > 1 else 0.0)
