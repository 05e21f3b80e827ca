"""Every mini-batch of a group is validated by the mean of the others: all k train, and nothing is thrown away.

    v_i = mean_{j != i} g_j,   w_i = <v_i, g_i> / (|g_i|^2 / lam + mu),   gradient = sum_i (w_i / W) g_i

It needs the inner products of every two gradients, so all k of them are held until the group is full.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from deepbilevel.checks import choose
from deepbilevel.contract import Accumulator, Memory, Outcome
from deepbilevel.gradients import Gradients, Layout, WeightedGradientSum
from deepbilevel.rule import bilevel_weights, cosines
from deepbilevel.rules.bilevel_settings import BilevelReport, BilevelSettings
from deepbilevel.rules.held import HeldGradients


def compare_with_the_others(gram: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
    """Let every mini-batch be validated by the mean of the others, ``v_i = mean_{j != i} g_j``.

    Return ``<v_i, g_i>`` and ``|v_i|``, each ``[..., n]``. A mini-batch that is not finite is part of no mean, and
    compared with nothing: NaN. So is a mini-batch that is left alone.

    Args:
        gram: ``<g_i, g_j>``, shape ``[..., n, n]``.
        finite: which mini-batches are, shape ``[n]``.

    >>> compare_with_the_others(torch.tensor([[4.0, 2.0], [2.0, 9.0]]), torch.tensor([True, True]))
    (tensor([2., 2.]), tensor([3., 2.]))
    """
    gram = torch.where(finite[:, None] & finite, gram, 0.0)
    others = 1 - torch.eye(len(finite), dtype=gram.dtype, device=gram.device)  # row i: all but i
    count = torch.where(finite & (finite.sum() > 1), finite.sum() - 1, torch.nan).to(gram.dtype)
    sums = others @ gram  # row i, column j: <sum of all but i, g_j>
    sq_norms = (sums * others).sum(-1)
    return (gram * others).sum(-1) / count, sq_norms.clamp(min=0).sqrt() / count


@dataclass(frozen=True)
class KFoldBilevel(BilevelSettings):
    """Bilevel weights with k-fold validation: every mini-batch is validated by the mean of all others.

    ``mu``, ``lam``, ``normalize`` and ``per_layer`` are those of :class:`~deepbilevel.Bilevel`; ``weighting`` is
    ``"agreement"`` or ``"cosine"``. All k mini-batches are trained on, so reports have k entries instead of k - 1. It
    holds all k gradients.
    """

    kind: ClassVar[str] = "k-fold"
    description: ClassVar[str] = "bilevel, each mini-batch validated by all others"
    spreads: ClassVar[bool] = False

    weighting: Literal["agreement", "cosine"] = "agreement"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("weighting", self.weighting, ("agreement", "cosine"))

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_ComparedWithOthers":
        """Return the accumulator of a new group."""
        return _ComparedWithOthers(self, layout)


class _ComparedWithOthers(Accumulator[BilevelReport]):
    def __init__(self, rule: KFoldBilevel, layout: Layout) -> None:
        super().__init__()
        self._rule = rule
        self._blocks = rule.blocks_of(layout)
        self._held = HeldGradients()

    def add(self, gradients: Gradients, place: int) -> None:
        sq_norms, dots = self._blocks.measure(gradients, self._held.gradients)
        self.rows[place] = (sq_norms,)
        self._held.add(gradients, dots, sq_norms)

    def finish(self, losses: Tensor) -> Outcome[BilevelReport]:
        (sq_norms,) = self.columns()
        finite = torch.isfinite(sq_norms).all(dim=1)
        dots, validation_norms = (each.T for each in compare_with_the_others(self._held.gram(), finite))  # [k, blocks]
        norms = sq_norms.sqrt()
        agreement = cosines(dots, norms, validation_norms)
        raw_weights = agreement
        if self._rule.weighting == "agreement":
            raw_weights = bilevel_weights(dots, sq_norms, lam=self._rule.lam, mu=self._rule.mu)
        total = WeightedGradientSum(self._blocks)
        self._held.add_to(total, raw_weights)
        divisors = self._rule.divisors(raw_weights)
        report = self._rule.report(raw_weights, divisors, agreement, norms, losses)
        return Outcome(total.divided_by(divisors), report)
