"""Learning-rate schedules: the factor on the learning rate at any moment of a run.

A schedule is a function of how far the run is, and has no state: nothing of it needs to be saved, and changing the
number of epochs stretches it. The arguments are the epoch, counted from 0 with its fraction, and their number.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class Constant:
    """The learning rate stays as it is."""

    kind: ClassVar[str] = "constant"

    def factor(self, epoch: float, num_epochs: int) -> float:
        """Return the factor on the learning rate."""
        return 1.0


@dataclass(frozen=True)
class Exponential:
    """The learning rate is multiplied by ``factor_per_epoch`` after every epoch.

    >>> Exponential().factor(2.5, 100)
    0.9025
    """

    kind: ClassVar[str] = "exponential"
    factor_per_epoch: float = 0.95

    def __post_init__(self) -> None:
        validate(self)
        _check_positive("factor_per_epoch", self.factor_per_epoch)

    def factor(self, epoch: float, num_epochs: int) -> float:
        """Return the factor on the learning rate."""
        return self.factor_per_epoch ** int(epoch)


@dataclass(frozen=True)
class Steps:
    """The learning rate is multiplied by ``drop`` whenever a share of the epochs in ``at`` is over.

    >>> [round(Steps().factor(epoch, 200), 4) for epoch in (99, 100, 150)]
    [1.0, 0.1, 0.01]
    """

    kind: ClassVar[str] = "steps"
    at: tuple[float, ...] = (0.5, 0.75)
    drop: float = 0.1

    def __post_init__(self) -> None:
        validate(self)
        _check_positive("drop", self.drop)
        if not all(0 < share < 1 for share in self.at):
            raise SpecError(f"at must hold shares of the epochs between 0 and 1, got {list(self.at)}")

    def factor(self, epoch: float, num_epochs: int) -> float:
        """Return the factor on the learning rate."""
        # Rounded: 0.55 * 100 is a little more than 55.
        return self.drop ** sum(int(epoch) >= round(share * num_epochs, 6) for share in self.at)


@dataclass(frozen=True)
class Linear:
    """The learning rate falls in a straight line to zero at the end of the run, step by step.

    >>> Linear().factor(25.0, 100)
    0.75
    """

    kind: ClassVar[str] = "linear"

    def factor(self, epoch: float, num_epochs: int) -> float:
        """Return the factor on the learning rate."""
        return max(0.0, 1.0 - epoch / num_epochs)


@dataclass(frozen=True)
class Cosine:
    """The learning rate rises in a straight line over ``warmup``, a share of the run, then falls as half a cosine.

    >>> [round(Cosine(warmup=0.1).factor(epoch, 100), 3) for epoch in (5, 10, 55, 100)]
    [0.5, 1.0, 0.5, 0.0]
    """

    kind: ClassVar[str] = "cosine"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        validate(self)
        if not 0 <= self.warmup < 1:
            raise SpecError(f"warmup must be a share of the epochs from 0 to less than 1, got {self.warmup}")

    def factor(self, epoch: float, num_epochs: int) -> float:
        """Return the factor on the learning rate."""
        done = min(1.0, epoch / num_epochs)
        if done < self.warmup:
            return done / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (done - self.warmup) / (1 - self.warmup)))


@dataclass(frozen=True)
class Phases:
    """Phases of equal length; the learning rate falls by the same factor between them, ``span``-fold over all.

    >>> [Phases(count=3, span=100.0).factor(epoch, 90) for epoch in (0, 30, 89)]
    [1.0, 0.1, 0.01]
    """

    kind: ClassVar[str] = "phases"
    count: int = 5
    span: float = 250.0

    def __post_init__(self) -> None:
        validate(self)
        _check_positive("span", self.span)
        if self.count < 2:
            raise SpecError(f"count must be at least 2 phases, got {self.count}; one phase is the schedule 'constant'")

    def factor(self, epoch: float, num_epochs: int) -> float:
        """Return the factor on the learning rate."""
        phase = min(int(epoch) * self.count // num_epochs, self.count - 1)
        return self.span ** (-phase / (self.count - 1))


ScheduleSpec = Constant | Exponential | Steps | Linear | Cosine | Phases


def _check_positive(name: str, value: float) -> None:
    if value <= 0:
        raise SpecError(f"{name} must be positive, got {value}")
