"""The paper's linear system solved exactly, instead of ignoring what training gradients have in common.

    (K / lam + mu I) w = b,   K_ij = <g_i, g_j>,   b_i = <g_v, g_i>

It needs the inner products of every two training gradients, so all k gradients are held until the group is full.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from deepbilevel.contract import Accumulator, Memory, Outcome
from deepbilevel.gradients import Gradients, Layout, WeightedGradientSum
from deepbilevel.rule import check_regularisation, cosines
from deepbilevel.rules.bilevel_settings import BilevelReport, BilevelSettings
from deepbilevel.rules.held import HeldGradients


def exact_weights(gram: Tensor, dots: Tensor, *, lam: float = 1.0, mu: float = 0.01) -> Tensor:
    """Solve ``(K / lam + mu I) w = b`` in float64.

    Where gradients are orthogonal this equals :func:`~deepbilevel.rule.bilevel_weights`; where ``mu = 0`` leaves the
    system singular, the solution of least norm is taken. A mini-batch whose statistics are not finite gets weight zero
    and takes no part.

    Args:
        gram: ``K``, shape ``[..., n, n]``.
        dots: ``b``, shape ``[..., n]``.
        lam: as in :func:`~deepbilevel.rule.bilevel_weights`.
        mu: as in :func:`~deepbilevel.rule.bilevel_weights`.

    >>> exact_weights(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([1.0, 0.5]), lam=1.0, mu=0.0)
    tensor([1., 0.])
    """
    check_regularisation(lam=lam, mu=mu)
    # The system has n = k - 1 unknowns, so it is solved on the CPU: not every device has float64.
    big_gram, big_dots = (statistic.to("cpu", torch.float64) for statistic in (gram, dots))
    usable = torch.isfinite(big_gram.diagonal(dim1=-2, dim2=-1)) & torch.isfinite(big_dots)
    big_gram = torch.where(usable[..., :, None] & usable[..., None, :], big_gram, 0.0)
    big_dots = torch.where(usable, big_dots, 0.0)
    system = big_gram / lam + mu * torch.eye(dots.shape[-1], dtype=torch.float64)
    solution = (torch.linalg.pinv(system, hermitian=True) @ big_dots[..., None])[..., 0]
    return torch.where(usable, solution, 0.0).to(dots)


@dataclass(frozen=True)
class ExactBilevel(BilevelSettings):
    """Weights from the full linear system. It holds all k gradients.

    ``mu``, ``lam``, ``normalize`` and ``per_layer`` are those of :class:`~deepbilevel.Bilevel`.
    """

    kind: ClassVar[str] = "exact"
    description: ClassVar[str] = "bilevel, the linear system solved exactly"
    validates: ClassVar[bool] = True
    spreads: ClassVar[bool] = False

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Solved":
        """Return the accumulator of a new group."""
        return _Solved(self, layout)


class _Solved(Accumulator[BilevelReport]):
    def __init__(self, rule: ExactBilevel, layout: Layout) -> None:
        super().__init__()
        self._rule = rule
        self._blocks = rule.blocks_of(layout)
        self._held = HeldGradients()  # of the training mini-batches

    def add(self, gradients: Gradients, place: int) -> None:
        if place == 0:
            sq_norms = self._blocks.sq_norms(gradients)
            self._validation, self._validation_is_finite = gradients, torch.isfinite(sq_norms).all()
            self.rows[0] = sq_norms, sq_norms  # it is not compared with itself: the second goes unread
            return
        sq_norms, (dots, *others) = self._blocks.measure(gradients, [self._validation, *self._held.gradients])
        # One bad layer discards the mini-batch as a whole: its other layers came from the same pass.
        sound = torch.isfinite(sq_norms).all() & self._validation_is_finite
        self.rows[place] = sq_norms, torch.where(sound, dots, torch.nan)
        self._held.add(gradients, others, sq_norms)

    def finish(self, losses: Tensor) -> Outcome[BilevelReport]:
        sq_norms, dots = self.columns()
        norms, dots = sq_norms.sqrt(), dots[1:]
        raw_weights = exact_weights(self._held.gram(), dots.T, lam=self._rule.lam, mu=self._rule.mu).T
        total = WeightedGradientSum(self._blocks)
        self._held.add_to(total, raw_weights)
        divisors = self._rule.divisors(raw_weights)
        agreement = cosines(dots, norms[1:], norms[0])
        report = self._rule.report(raw_weights, divisors, agreement, norms, losses)
        return Outcome(total.divided_by(divisors), report)
