"""Taking turns: every round each contender makes one update, and a ratio is taken within the round.

So a machine that is slow for a while is slow for all. Processor time is measured: waiting for the processor does not
count. Only how long it takes until something happens, a help page or the import of the package, is told by the clock on
the wall. This module knows updates and seconds; it does not know which methods are compared.
"""

import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median, quantiles
from textwrap import shorten

_LONGEST_REASON = 200

Clock = Callable[[], float]
Update = Callable[[], object]

_PROGRAMS = {
    "import torch": "import torch",
    "import deepbilevel": "import deepbilevel",
    "from deepbilevel import Bilevel": "from deepbilevel import Bilevel",
    "deepbilevel --help": (
        "import sys; sys.argv = ['deepbilevel', '--help']; from deepbilevel_lab.cli import main; main()"
    ),
    "python": "pass",
}


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Attributes:
        seconds: after which a contender takes part no more; slower ones so get fewer rounds, and one at the least.
        rounds: how many there are; those that the claims are about take part in all of them, whatever it takes.
        warm_up: whether a round that does not count comes first. Where updates are long, the first one to be compared
            with warms up alone: memory that is touched for the first time would be on its bill.
    """

    seconds: float
    rounds: int
    warm_up: bool = True


@dataclass(frozen=True)
class Spread:
    """A median, and between which values the middle half lies.

    >>> Spread.of([1.0, 2.0, 3.0, 4.0, 5.0])
    Spread(median=3.0, low=2.0, high=4.0)
    >>> Spread.of([2.0])
    Spread(median=2.0, low=2.0, high=2.0)
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Describe at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)


@dataclass(frozen=True)
class Turns:
    """The seconds of every turn, and why who gave up did so.

    Attributes:
        seconds: of each contender, by number of the round.
        failures: what stopped a contender, in a line.
    """

    seconds: dict[str, dict[int, float]]
    failures: dict[str, str] = field(default_factory=dict[str, str])

    def ratios(self, name: str, to: str) -> list[float]:
        """Return how much longer one took than another, in each round that both took part in."""
        mine, theirs = self.seconds[name], self.seconds[to]
        return [seconds / theirs[number] for number, seconds in mine.items() if number in theirs]


def take_turns(
    updates: Mapping[str, Update],
    budget: Budget,
    *,
    always: Sequence[str],
    nearest: Sequence[str] = (),
    clock: Clock = time.process_time,
) -> Turns:
    """Let everyone make an update in turn, round after round, as long as its seconds last.

    Args:
        updates: by name.
        budget: of each.
        always: who takes part in every round, because the claims are about it; its failure is the end.
        nearest: who takes part in every round too, but may fail.
        clock: that tells seconds.
    """
    turns = Turns({name: {} for name in updates})
    names = list(updates)

    def has_a_turn(name: str, number: int) -> bool:
        if name in turns.failures:
            return False
        return name in always or name in nearest or number == 0 or sum(turns.seconds[name].values()) < budget.seconds

    def take_turn(name: str) -> float:
        start = clock()
        try:
            updates[name]()
        except Exception as error:
            if name in always:
                raise
            turns.failures[name], turns.seconds[name] = reason(error), {}
        took = clock() - start
        gc.collect()  # what one leaves behind is not cleared away in another's time
        return took

    with _undisturbed():
        for name in names if budget.warm_up else always[:1]:
            take_turn(name)
        for number in range(budget.rounds):
            # Whoever comes first finds the caches as the last one left them, so each comes first in turn.
            first = number % len(names)
            for name in names[first:] + names[:first]:
                if has_a_turn(name, number):
                    took = take_turn(name)
                    if name not in turns.failures:
                        turns.seconds[name][number] = took
    return turns


def reason(error: BaseException) -> str:
    r"""Return an error as one line.

    >>> reason(ValueError("too small\nsee above"))
    'ValueError: too small'
    """
    first, *_ = str(error).strip().splitlines() or [""]
    return shorten(f"{type(error).__name__}: {first}", _LONGEST_REASON, placeholder=" ...")


@contextmanager
def _undisturbed() -> Generator[None]:
    """Clear nothing away while somebody is timed, and let packages warn of what their authors know."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()  # so that clearing away later looks at little
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


def measure_start_up(num_rounds: int) -> dict[str, dict[str, Spread]]:
    """Return for each program its seconds, and how many times longer it takes than to import torch."""
    reference = "import torch"
    budget = Budget(seconds=float("inf"), rounds=num_rounds)
    updates: dict[str, Update] = {name: lambda code=code: _run(code) for name, code in _PROGRAMS.items()}
    # A person waits by the clock on the wall, and processor time is not that of another process.
    turns = take_turns(updates, budget, always=[reference], clock=time.perf_counter)
    if turns.failures:
        raise RuntimeError(f"start-up cannot be measured: {turns.failures}")
    return {
        name: {"seconds": Spread.of([*seconds.values()]), "ratio": Spread.of(turns.ratios(name, reference))}
        for name, seconds in turns.seconds.items()
    }


def _run(code: str) -> None:
    # Who has installed the package has its byte code; from a checkout the first start leaves it behind, if it may.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True, env=environment)
