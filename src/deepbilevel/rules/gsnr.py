"""Steps weighted by the gradient's signal-to-noise ratio, parameter by parameter (Liu et al. 2020, Jiang et al. 2023).

    r = mean_i(g_i)^2 / var_i(g_i),   f = clamp(r / (mean of r over the tensor), floor, 1),   gradient = f mean_i(g_i)

Liu et al. define r (GSNR) over single images; Jiang et al. ("VRGD") take it over parts of a batch and step like this.
Whether the variance is divided by k or k - 1 cancels out. Where mini-batches are all equal, r is infinite: f is 1
there, and the mean is over the others. The mean, the sum of squared deviations and one g_i are held, whatever k is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from deepbilevel.checks import check_number
from deepbilevel.contract import Blank, Memory, Outcome, Rule
from deepbilevel.gradients import Gradients, Layout, wide_zeros
from deepbilevel.rules.elementwise import ElementwiseReport, FiniteBatches, apply_factors


@dataclass(frozen=True)
class Gsnr(Rule[ElementwiseReport]):
    """The mean gradient, made smaller where mini-batches differ more than elsewhere.

    Mini-batches that are not finite are left out; if fewer than two remain, nothing is learned.

    Attributes:
        floor: the smallest factor; 1 is plain averaging.
    """

    kind: ClassVar[str] = "gsnr"
    description: ClassVar[str] = "the mean, smaller where mini-batches differ more than elsewhere"

    floor: float = 0.1

    def __post_init__(self) -> None:
        check_number("floor", self.floor, 0, 1, remedy="its authors take 0.1, and 1 is plain averaging")

    @property
    def needs_whole_parameters(self) -> str | None:
        """It does."""
        return "GSNR takes means over whole parameters"

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Deviations":
        """Return the accumulator of a new group."""
        return _Deviations(self.floor, layout)


class _Deviations(FiniteBatches):
    def __init__(self, floor: float, layout: Layout) -> None:
        super().__init__(layout)
        self._floor = floor
        self._mean: Gradients = {}
        self._deviations: Gradients = {}

    def add(self, gradients: Gradients, place: int) -> None:
        """Go on with mean and squared deviations as Welford does: squares of sums would lose a small variance."""
        gradients, finite = self._take(gradients, place)
        count = self._own_count = self._count
        share = torch.where(finite, 1 / count, 0.0)  # of this mini-batch in the mean
        growth = torch.where(finite, 1 - 1 / count, 0.0)
        for position, gradient in gradients.items():
            if position not in self._mean:  # no mini-batch before had any: all of them were zero
                self._mean[position], self._deviations[position] = (torch.zeros_like(gradient) for _ in range(2))
        for position, mean in self._mean.items():
            change = gradients[position].sub_(mean) if position in gradients else -mean
            mean.addcmul_(change, share.to(mean))
            self._deviations[position].addcmul_(change.square_(), growth.to(mean))

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        """Yield the mean as a sum, then the deviations from the mean of all.

        ``sum (g - m)^2 = sum (g - m_own)^2 + n_own (m_own - m)^2``: sums of squares would lose a small variance.
        """
        count = self._own_count
        own = {position: mean.clone() for position, mean in self._mean.items()}
        for mean in self._mean.values():
            mean.mul_(count)
        yield [(self._mean, wide_zeros)]
        for position, mean in self._mean.items():
            mean.div_(self._count.clamp(min=1))
            change = own[position].sub_(mean) if position in own else -mean
            deviations = self._deviations.setdefault(position, torch.zeros_like(mean))
            deviations.addcmul_(change.square_(), count.to(mean))
        yield [(self._deviations, wide_zeros)]

    def finish(self, losses: Tensor) -> Outcome[ElementwiseReport]:
        comparable = self._count > 1
        for position, mean in self._mean.items():
            ratios = mean.square().div_(self._deviations[position])
            self._deviations[position] = self._factors(ratios).mul_(comparable)
        shared = self._layout.mean(apply_factors(self._mean, self._deviations), self._mean)
        return Outcome(self._mean, self._report(losses, shared))

    def _factors(self, ratios: Tensor) -> Tensor:
        ratios.nan_to_num_(nan=0.0, posinf=torch.inf)  # 0 / 0: a gradient of zero has no signal
        certain = torch.isinf(ratios)
        average = torch.where(certain, 0.0, ratios).sum() / (~certain).sum()
        factors = torch.where(certain, 1.0, ratios.div_(average))
        return factors.nan_to_num_(nan=0.0).clamp_(self._floor, 1)  # 0 / 0: no signal in the whole tensor
