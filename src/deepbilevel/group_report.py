"""What every step over a group can tell. Tensors stay on the device, so a report nobody reads costs no waiting."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupReport:
    """Base of all reports.

    Attributes:
        weights: what the mini-batches that were learned from counted.
        losses: the k losses.
        finite: for each of the k mini-batches whether its gradient was finite.
    """

    weights: Tensor
    losses: Tensor
    finite: Tensor

    @property
    def skipped(self) -> tuple[int, ...]:
        """Positions in the group of mini-batches whose gradient was not finite; 0 is the first."""
        return tuple(torch.nonzero(~self.finite).flatten().tolist())

    @property
    def applied(self) -> bool:
        """Whether anything was learned: false when the step's gradient was zeroed."""
        return bool((self.weights != 0).any())
