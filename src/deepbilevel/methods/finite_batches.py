"""What the elementwise rules have in common: which mini-batches of a group are finite, and what they report.

A mini-batch whose gradient is not finite becomes zero and is not counted, on the device, without waiting for it. What
a rule makes of the others is its own file.
"""

import torch
from torch import Tensor

from deepbilevel.cross_validated import CrossValidatedReport
from deepbilevel.gradients import Blocks, Gradients, silence_unless, widen_gradients


class ElementwiseReport(CrossValidatedReport):
    """What a step did that gives every parameter a factor of its own; ``shared`` is the mean of the factors.

    A gradient of zero counts as a factor of 0.
    """


class FiniteBatches:
    """Counts and measures the mini-batches of one group, and silences those that are not finite.

    Args:
        model: all parameters as one block.
    """

    def __init__(self, model: Blocks) -> None:
        self._model = model
        self._norms: list[Tensor] = []

    def take(self, gradients: Gradients) -> tuple[Gradients, Tensor]:
        """Return gradients of float32 at the least, zero unless all of them are finite; and whether they are."""
        norm = self._model.sq_norms(gradients).sqrt().squeeze()
        self._norms.append(norm)
        gradients, finite = widen_gradients(gradients), torch.isfinite(norm)
        silence_unless(finite, gradients)
        return gradients, finite

    def complete(self, norms: Tensor) -> None:
        """Go on with the lengths of the whole group, where this process has seen a share of it."""
        self._norms = list(norms.unbind())

    @property
    def norms(self) -> Tensor:
        """Length of each gradient."""
        return torch.stack(self._norms)

    @property
    def finite(self) -> Tensor:
        """Which mini-batches were finite."""
        return torch.isfinite(self.norms)

    @property
    def count(self) -> Tensor:
        """How many mini-batches were finite, as a number to divide by."""
        return self.finite.sum().to(self._norms[0].dtype)

    def report(self, losses: Tensor, shared: Tensor) -> ElementwiseReport:
        """Return the report of a step in which every finite mini-batch counted alike."""
        weights = self.finite / self.count.clamp(min=1)
        return ElementwiseReport(weights=weights, shared=shared, norms=self.norms, losses=losses, finite=self.finite)


def apply_factors(gradients: Gradients, factors: Gradients) -> Tensor:
    """Multiply means by their factors in place, and return the sum of factors; where a mean is zero it counts as 0."""
    total = torch.zeros((), device=next(iter(gradients.values())).device)
    for position, gradient in gradients.items():
        factor = factors.pop(position)
        total += (factor * (gradient != 0)).sum()
        gradient.mul_(factor)
    return total
