"""The AND-mask: learn only where the mini-batches of a group agree on the sign (Parascandolo et al. 2020).

    m = |mean_i sign(g_i)| >= threshold,   gradient = m * mean_i g_i

"Learning explanations that are hard to vary", with mini-batches in place of environments. The sum of gradients, the sum
of signs and one g_i are held, whatever k is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from deepbilevel.checks import check_number
from deepbilevel.contract import Blank, Memory, Outcome, Rule
from deepbilevel.gradients import Gradients, Layout, wide_zeros
from deepbilevel.rules.elementwise import ElementwiseReport, FiniteBatches, apply_factors


@dataclass(frozen=True)
class AndMask(Rule[ElementwiseReport]):
    """The mean gradient where signs agree, and zero elsewhere.

    Mini-batches that are not finite are left out; if fewer than two remain, nothing is learned.

    Attributes:
        threshold: how far the mean sign must be from zero: 0 keeps everything, 1 requires all mini-batches to agree,
            0.5 three of four.
    """

    kind: ClassVar[str] = "and-mask"
    description: ClassVar[str] = "the mean where the mini-batches of a group agree on the sign"

    threshold: float = 0.5

    def __post_init__(self) -> None:
        remedy = "1 requires all mini-batches to agree, 0.5 three of four"
        check_number("threshold", self.threshold, 0, 1, remedy=remedy)

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Signs":
        """Return the accumulator of a new group."""
        return _Signs(self.threshold, layout)


class _Signs(FiniteBatches):
    def __init__(self, threshold: float, layout: Layout) -> None:
        super().__init__(layout)
        self._threshold = threshold
        self._sum: Gradients = {}
        self._signs: Gradients = {}

    def add(self, gradients: Gradients, place: int) -> None:
        gradients, _ = self._take(gradients, place)
        for position, gradient in gradients.items():
            if position in self._sum:
                self._sum[position].add_(gradient)
                self._signs[position].add_(gradient.sign_())  # the gradient's own memory, no third buffer
            else:
                self._sum[position], self._signs[position] = gradient, gradient.sign()

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        yield [(self._sum, wide_zeros), (self._signs, wide_zeros)]

    def finish(self, losses: Tensor) -> Outcome[ElementwiseReport]:
        count = self._count
        # 15 of 25 are 0.6, also where 0.6 * 25 is rounded to a little more than 15.
        needed = self._threshold * count * (1 - 1e-6)
        for gradient, signs in zip(self._sum.values(), self._signs.values(), strict=True):
            gradient.div_(count.clamp(min=1))
            signs.copy_((signs.abs_() >= needed) & (count > 1))
        shared = self._layout.mean(apply_factors(self._sum, self._signs), self._sum)
        return Outcome(self._sum, self._report(losses, shared))
