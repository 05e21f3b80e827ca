"""How the probabilities of a sample moved in the course of training: a few points each, however long it takes.

Time is counted in visits of all samples together, so a point is the same part of training for all of them, and for
audits that ran side by side. A point holds the last visit of its part. When all points are used, each part is joined
with its neighbour and the points are half used again.
"""

import torch
from torch import Tensor

NUM_POINTS = 32
_NOTHING = 255
_STEPS = 254


class Curves:
    """Probabilities in steps of 1/254, uint8 ``[samples, points, lines]``; ``num_lines`` are kept per sample."""

    def __init__(self, num_samples: int, num_lines: int, device: torch.device) -> None:
        shape = (num_samples, NUM_POINTS, num_lines)
        self.points = torch.full(shape, _NOTHING, dtype=torch.uint8, device=device)
        self.clock = 0

    def advance(self, count: int) -> Tensor:
        """Let time go on by so many visits, and return the point of each of them."""
        before, self.clock = self.clock, self.clock + count
        for _ in range(_halvings(before, self.clock)):
            self.points.copy_(
                _halved(self.points)
            )  # in place: under inference_mode a new tensor could not be changed later
        return torch.arange(before, self.clock, device=self.points.device) // _visits_per_point(self.clock)

    def set(self, at: Tensor, places: Tensor, probabilities: Tensor, is_known: Tensor) -> None:
        """Set points of samples that are all different, where something is known of them."""
        new = (probabilities * _STEPS).round().clamp(0, _STEPS).byte()
        self.points[at, places] = torch.where(is_known[:, None], new, self.points[at, places])

    def read(self, at: Tensor) -> Tensor:
        """Return the used points of samples, float32 ``[samples, points, lines]``; NaN where there was no visit."""
        used = self.points[at, : -(-self.clock // _visits_per_point(self.clock))]
        return torch.where(used == _NOTHING, torch.nan, used.float() / _STEPS)

    def totals(self, rows: slice, clock: int) -> list[Tensor]:
        """Return sums and counts that add up with those of other curves at the same, later time."""
        points = self.points[rows].cpu()
        for _ in range(_halvings(self.clock, clock)):
            points = _halved(points)
        is_known = points != _NOTHING
        return [torch.where(is_known, points, 0).double().flatten(), is_known.double().flatten()]

    def set_totals(self, rows: slice, sums: Tensor, counts: Tensor) -> None:
        """Take over sums and counts: where several were visited in the same part of training, their mean."""
        mean = torch.where(counts > 0, (sums / counts.clamp(min=1)).round(), _NOTHING)
        self.points[rows] = mean.view(self.points[rows].shape).byte().to(self.points.device)


def _visits_per_point(clock: int) -> int:
    """Return the smallest power of two with which so many visits fit."""
    return 1 << max(0, (clock - 1) // NUM_POINTS).bit_length()


def _halvings(before: int, after: int) -> int:
    return _visits_per_point(after).bit_length() - _visits_per_point(before).bit_length()


def _halved(points: Tensor) -> Tensor:
    early, late = points[:, 0::2], points[:, 1::2]
    joined = torch.where(late == _NOTHING, early, late)
    return torch.cat([joined, torch.full_like(joined, _NOTHING)], dim=1)
