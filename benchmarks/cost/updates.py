"""One update of everybody, timed; and how the cost of an image grows with the mini-batches and the model.

Beside growth stands what must be paid. The limit is a lower one: the multiplications of all passes at the rate of this
machine's matrix product, and the least number of bytes at the rate at which it copies as many as the model has.
Everything else, as pooling or starting a kernel, is not in it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.cost.contenders import ACCUMULATION, CLAIMED, EVERYBODY, NEAREST, SGD, Contender
from benchmarks.cost.timing import Budget, Spread, Turns, reason, take_turns
from benchmarks.cost.work import Setting, Update, Work

COMPARED: tuple[Contender, ...] = tuple(each for each in EVERYBODY if each.name in CLAIMED)
_MATRIX = 768  # large enough for the full rate, small enough for a fraction of a second
_REPEATED = 5


@dataclass(frozen=True)
class Row:
    """How one contender did in one setting; all figures are empty if it failed.

    Attributes:
        name: of the contender.
        kind: a plain loop, ours, or a peer's.
        failed: why there is nothing to tell.
        rounds: how many were measured.
        seconds: of processor time for one update.
        to_sgd: how many times longer than plain SGD on the same samples.
        to_accumulation: how many times longer than gradient accumulation.
    """

    name: str
    kind: str
    failed: str | None = None
    rounds: int = 0
    seconds: Spread | None = None
    to_sgd: Spread | None = None
    to_accumulation: Spread | None = None


def compare_updates(
    setting: Setting, budget: Budget, contenders: Sequence[Contender] = EVERYBODY, always: Sequence[str] = CLAIMED
) -> list[Row]:
    """Time one update of every contender, in turn; those named in ``always`` in every round."""
    work = Work.of(setting)
    updates: dict[str, Update] = {}
    failures: dict[str, str] = {}
    for contender in contenders:
        try:
            updates[contender.name] = contender.prepare(work)
        except Exception as error:
            if contender.kind != "peer":
                raise
            failures[contender.name] = reason(error)
    present = [name for name in always if name in updates]
    turns = take_turns(updates, budget, always=present, nearest=NEAREST)
    return [_row(each, turns, failures | turns.failures) for each in contenders]


def _row(contender: Contender, turns: Turns, failures: dict[str, str]) -> Row:
    name = contender.name
    if name in failures:
        return Row(name, contender.kind, failed=failures[name])
    return Row(
        name,
        contender.kind,
        rounds=len(turns.seconds[name]),
        seconds=Spread.of([*turns.seconds[name].values()]),
        to_sgd=Spread.of(turns.ratios(name, SGD)),
        to_accumulation=Spread.of(turns.ratios(name, ACCUMULATION)),
    )


def seconds_of_update(setting: Setting, contenders: Sequence[Contender], budget: Budget) -> dict[str, Spread]:
    """Return the seconds of one update of every contender that does not fail."""
    rows = compare_updates(setting, budget, contenders)
    return {row.name: row.seconds for row in rows if row.seconds is not None}


@dataclass(frozen=True)
class Axis:
    """What grows.

    Attributes:
        name: for people.
        settings: in which one thing differs.
    """

    name: str
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class Point:
    """What was measured in one setting.

    Attributes:
        x: the place on the axis.
        setting: in words.
        microseconds: per image, by contender.
        limit: the least number of microseconds per image in which bilevel could be done here.
    """

    x: float
    setting: str
    microseconds: dict[str, Spread]
    limit: float


@dataclass(frozen=True)
class Growth:
    """One axis with its points."""

    axis: str
    points: list[Point]


BY_NUMBER, BY_SIZE, BY_PARAMETERS = "mini-batches in a group", "images in a mini-batch", "parameters (millions)"

AXES = (
    Axis(BY_NUMBER, tuple(Setting("cifarnet", k, 16) for k in (2, 4, 8, 16))),
    Axis(BY_SIZE, tuple(Setting("cifarnet", 8, size) for size in (4, 8, 16, 32))),
    Axis(BY_PARAMETERS, tuple(Setting(f"conv{width}", 8, 16) for width in (16, 32, 64, 128))),
)


def measure_growth(
    axis: Axis, seconds_of: Callable[[Setting, Sequence[Contender]], dict[str, Spread]], tell: Callable[[str], None]
) -> Growth:
    """Measure every point of an axis; ``seconds_of`` tells what one update of each contender takes."""
    points: list[tuple[float, str, dict[str, Spread]]] = []
    work_and_rates: list[tuple[Work, Rates]] = []
    for setting in axis.settings:
        tell(f"growth with {axis.name}: {setting}")
        work = Work.of(setting)
        images = setting.num_batches * setting.batch_size
        millions = float(f"{work.num_parameters / 1e6:.3g}")  # more digits would only crowd an axis
        x = {BY_NUMBER: setting.num_batches, BY_SIZE: setting.batch_size}.get(axis.name, millions)
        found = {
            name: Spread(*(1e6 * each / images for each in (seconds.median, seconds.low, seconds.high)))
            for name, seconds in seconds_of(setting, COMPARED).items()
        }
        points.append((float(x), str(setting), found))
        work_and_rates.append((work, Rates.of_this_machine(work.num_parameters)))
    # A limit may not rise because somebody else used the machine when it was measured.
    multiplying = min(rates.seconds_per_operation for _, rates in work_and_rates)
    limits = [
        1e6
        * least_seconds(work, Rates(multiplying, rates.seconds_per_byte))
        / sum(len(each[1]) for each in work.batches)
        for work, rates in work_and_rates
    ]
    return Growth(axis.name, [Point(*point, limit) for point, limit in zip(points, limits, strict=True)])


@dataclass(frozen=True)
class Rates:
    """What a machine can do at the best: multiply large matrices, and copy as many numbers as a model has."""

    seconds_per_operation: float
    seconds_per_byte: float

    @classmethod
    def of_this_machine(cls, num_parameters: int) -> "Rates":
        """Measure them."""
        copied, square = torch.empty(num_parameters), torch.rand(_MATRIX, _MATRIX)
        multiplying, copying = _fastest(lambda: square @ square), _fastest(lambda: copied.clone())
        return cls(multiplying / (2 * _MATRIX**3), copying / (2 * copied.nbytes))


def least_seconds(work: Work, rates: Rates) -> float:
    """Return the seconds of processor time that one bilevel update takes at the very least."""
    operations, num_bytes = least_work(work)
    return operations * rates.seconds_per_operation + num_bytes * rates.seconds_per_byte


def least_work(work: Work) -> tuple[int, int]:
    """Return the floating-point operations of all passes of an update, and the bytes bilevel must move beside them.

    Bytes: in every pass weights are read forward and backward and a gradient is written. A training gradient is read
    once, with the validation gradient, and added to the sum. The optimizer reads the gradient, and reads and writes
    momentum and weights. Activations are taken to stay in the cache.
    """
    network, (images, labels) = work.network(), work.batches[0]
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(network(images), labels).backward()
    k = work.num_batches
    per_parameter = 3 * k + 4 * (k - 1) + 5
    return k * counter.get_total_flops(), per_parameter * work.num_parameters * torch.float32.itemsize


def _fastest(action: Callable[[], Any]) -> float:
    action()
    times: list[float] = []
    for _ in range(_REPEATED):
        start = time.perf_counter()  # too short for the clock of processor time; the fastest was not interrupted
        action()
        times.append(time.perf_counter() - start)
    return min(times)
