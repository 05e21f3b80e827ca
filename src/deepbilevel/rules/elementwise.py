"""What the elementwise rules have in common: which mini-batches of a group are finite, and what they report.

A mini-batch whose gradient is not finite becomes zero and is not counted, on the device, without waiting for it. What
a rule makes of the others is its own file.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from deepbilevel.contract import Accumulator, Report
from deepbilevel.gradients import Gradients, Layout, silence_unless, widen_gradients


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementwiseReport(Report):
    """What a step did that gives every parameter a factor of its own.

    Attributes:
        weights: of each of the k mini-batches: ``1 / k``, or 0 where its gradient was not finite.
        shared: the mean of the factors over all parameters: how much of the gradient the mini-batches have in common.
        norms: length of each of the k gradients.
    """

    shared: Tensor
    norms: Tensor

    @property
    def applied(self) -> bool:
        """Whether anything was learned; it was not if the mini-batches had nothing in common."""
        return bool(self.shared > 0)


class FiniteBatches(Accumulator[ElementwiseReport]):
    """Base of accumulators that count and measure mini-batches, and leave out those that are not finite.

    Args:
        layout: of the model.
    """

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self._layout = layout

    def _take(self, gradients: Gradients, place: int) -> tuple[Gradients, Tensor]:
        """Return gradients of float32 at the least, zero unless all of them are finite; and whether they are."""
        norm = self._layout.model.sq_norms(gradients).sqrt()
        self.rows[place] = norm
        gradients, finite = widen_gradients(gradients), torch.isfinite(norm).squeeze()
        silence_unless(finite, gradients)
        return gradients, finite

    @property
    def _norms(self) -> Tensor:
        """Length of the gradient of each mini-batch that is in."""
        return self.columns()[0]

    @property
    def _finite(self) -> Tensor:
        return torch.isfinite(self._norms)

    @property
    def _count(self) -> Tensor:
        """How many mini-batches are finite, as a number to divide by."""
        return self._finite.sum().to(self._norms.dtype)

    def _report(self, losses: Tensor, shared: Tensor) -> ElementwiseReport:
        """Return the report of a step in which all finite mini-batches have the same weight."""
        finite = self._finite
        weights = finite / self._count.clamp(min=1)
        return ElementwiseReport(weights=weights, shared=shared, norms=self._norms, losses=losses, finite=finite)


def apply_factors(gradients: Gradients, factors: Gradients) -> Tensor:
    """Multiply means by their factors in place, and return the sum of factors; where a mean is zero it counts as 0."""
    total = torch.zeros((), device=next(iter(gradients.values())).device)
    for position, gradient in gradients.items():
        factor = factors.pop(position)
        total += (factor * (gradient != 0)).sum()
        gradient.mul_(factor)
    return total
