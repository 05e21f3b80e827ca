"""Plain averaging: what every rule is compared with."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from deepbilevel.checks import check_flag
from deepbilevel.contract import Accumulator, Blank, Memory, Outcome, Report, Rule
from deepbilevel.gradients import Gradients, Layout


@dataclass(frozen=True)
class Sgd(Rule[Report]):
    """Plain training: the group as one batch, drawn without regard to labels."""

    kind: ClassVar[str] = "sgd"
    description: ClassVar[str] = "plain training, the group as one batch"
    splits: ClassVar[bool] = False
    tolerates_bad_batches: ClassVar[bool] = False
    min_batches: ClassVar[int] = 1

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Mean":
        """Return the accumulator of a new group."""
        return _Mean(layout, num_batches, leave_out=0)


@dataclass(frozen=True)
class Uniform(Rule[Report]):
    """The control: the same matched mini-batches as bilevel, all with the same weight.

    Attributes:
        use_validation: learn from the first mini-batch too, so that nothing is thrown away; this is gradient
            accumulation.
    """

    kind: ClassVar[str] = "uniform"
    description: ClassVar[str] = "control: bilevel's mini-batches with equal weights"
    matches: ClassVar[bool] = True
    validates: ClassVar[bool] = True
    tolerates_bad_batches: ClassVar[bool] = False

    use_validation: bool = False

    def __post_init__(self) -> None:
        check_flag("use_validation", self.use_validation)

    def silently_left_out(self, finite: Tensor) -> Tensor:
        """Return the flag of the first mini-batch, if it is left out."""
        return finite[: self._num_left_out]

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Mean":
        """Return the accumulator of a new group."""
        return _Mean(layout, num_batches, self._num_left_out)

    @property
    def _num_left_out(self) -> int:
        return 0 if self.use_validation else 1


class _Mean(Accumulator[Report]):
    def __init__(self, layout: Layout, num_batches: int, leave_out: int) -> None:
        super().__init__()
        self._blocks = layout.model
        self._num_used = num_batches - leave_out
        self._leave_out = leave_out
        self._sum: Gradients = {}

    def add(self, gradients: Gradients, place: int) -> None:
        self.rows[place] = self._blocks.sq_norms(gradients)
        if place < self._leave_out:
            return
        for position, gradient in gradients.items():
            held = self._sum.get(position)
            self._sum[position] = gradient if held is None else held.add_(gradient)

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        yield [(self._sum, torch.zeros_like)]

    def finish(self, losses: Tensor) -> Outcome[Report]:
        for gradient in self._sum.values():
            gradient.div_(self._num_used)  # a plain number: 1/3 as a tensor would have float32's precision
        weights = torch.full((self._num_used,), 1 / self._num_used, device=losses.device)
        finite = torch.isfinite(self.columns()[0])
        return Outcome(self._sum, Report(weights=weights, losses=losses, finite=finite))
