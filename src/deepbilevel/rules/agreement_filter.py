"""Gradient agreement filtering: a mini-batch joins the average if it points the same way (Chaubard et al. 2024).

    v = g_1;   for i = 2 .. k:   if 1 - cos(v, g_i) <= max_cosine_distance:   v = (v + g_i) / 2;   gradient = v

The first mini-batch begins, later ones count more, and if none agrees nothing is learned. The authors' package,
``gradient-agreement-filtering`` 0.1.3, does the same; a test compares the two. It is not called from here because it
owns the optimizer's step and the loading of images, copies every gradient, and prints or logs as it goes. Two things
differ: a zero gradient is filled where the package skips the optimizer's step, and a mini-batch that is not finite is
left out where the package takes it in. The average and one g_i are held, whatever k is.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from deepbilevel.checks import check_number
from deepbilevel.contract import Accumulator, Memory, Outcome, Report, Rule
from deepbilevel.gradients import Gradients, Layout, blend_gradients, scale_gradients, silence_unless, widen_gradients
from deepbilevel.rule import cosines


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterReport(Report):
    """What one step did.

    Attributes:
        weights: of each of the k mini-batches in the average; all 0 if the step is zero.
        agreement: cosine of each mini-batch but the first with the average before it; 0 if there was none.
        norms: length of each of the k gradients.
    """

    agreement: Tensor
    norms: Tensor


@dataclass(frozen=True)
class AgreementFilter(Rule[FilterReport]):
    """An average of those mini-batches that agree with the ones before them.

    Attributes:
        max_cosine_distance: up to which ``1 - cosine`` a mini-batch agrees, in 0 .. 2; the authors recommend 0.9 to 1.
    """

    kind: ClassVar[str] = "agreement-filter"
    description: ClassVar[str] = "an average of the mini-batches that agree with those before them"
    spreads: ClassVar[bool] = False  # each mini-batch is compared with all before it

    max_cosine_distance: float = 0.97

    def __post_init__(self) -> None:
        remedy = "its authors recommend 0.9 to 1"
        check_number("max_cosine_distance", self.max_cosine_distance, 0, 2, remedy=remedy)

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Filtered":
        """Return the accumulator of a new group."""
        return _Filtered(self.max_cosine_distance, layout)


class _Filtered(Accumulator[FilterReport]):
    def __init__(self, max_cosine_distance: float, layout: Layout) -> None:
        super().__init__()
        self._max_cosine_distance = max_cosine_distance
        self._blocks = layout.model
        self._average: Gradients = {}
        self._weights: list[Tensor] = []
        self._agreement: list[Tensor] = []

    def add(self, gradients: Gradients, place: int) -> None:
        sq_norm = self._blocks.sq_norms(gradients)
        self.rows[place] = sq_norm.sqrt()
        gradients, finite = widen_gradients(gradients), torch.isfinite(sq_norm).squeeze()
        silence_unless(finite, gradients)
        if place == 0:
            self._average = gradients
            self._started, self._agreed = finite, torch.zeros_like(finite)  # a finite mini-batch is in; a second one is
            self._weights.append(finite.to(sq_norm.dtype))
            return
        own_sq_norm, (dot,) = self._blocks.measure(gradients, [self._average])
        cosine = cosines(dot, own_sq_norm.sqrt(), self._blocks.sq_norms(self._average).sqrt()).squeeze()
        agrees = self._started & finite & (1 - cosine <= self._max_cosine_distance)
        kept = torch.where(agrees, 0.5, (self._started | ~finite).to(cosine.dtype)).to(cosine.dtype)
        self._average = blend_gradients(self._average, gradients, kept)
        self._started, self._agreed = self._started | finite, self._agreed | agrees
        self._weights = [*(weight * kept for weight in self._weights), 1 - kept]
        self._agreement.append(cosine)

    def finish(self, losses: Tensor) -> Outcome[FilterReport]:
        (norms,) = self.columns()
        weights = torch.stack(self._weights)
        # Opposite gradients that a large distance lets pass may cancel out: nothing is learned then, either.
        learned = self._agreed & (self._blocks.sq_norms(self._average) > 0).squeeze()
        scale_gradients(self._average, learned.to(weights.dtype))
        report = FilterReport(
            weights=weights * learned,
            agreement=torch.stack(self._agreement),
            norms=norms,
            losses=losses,
            finite=torch.isfinite(norms),
        )
        return Outcome(self._average, report)
