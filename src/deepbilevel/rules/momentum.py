"""The paper's rule with a validation gradient that is averaged over groups.

    v <- m v + (1 - m) g_first,   w_i = <v, g_i> / (|g_i|^2 / lam + mu)

A first mini-batch that is not finite leaves the average as it was. One buffer of the model's size more is held, also
between groups.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from deepbilevel.contract import Memory, Outcome
from deepbilevel.gradients import Gradients, Layout, blend_gradients, silence_unless, widen_gradients
from deepbilevel.rules.averages import check_average, check_momentum
from deepbilevel.rules.bilevel import BilevelAccumulator, BilevelRule
from deepbilevel.rules.bilevel_settings import BilevelReport


@dataclass(frozen=True)
class MomentumBilevel(BilevelRule):
    """Bilevel weights by agreement with an average; other settings as in :class:`~deepbilevel.Bilevel`.

    Attributes:
        momentum: m, from 0 (the current group alone) to less than 1; 0.9 remembers about ten groups.
    """

    kind: ClassVar[str] = "momentum"
    description: ClassVar[str] = "bilevel, the validation gradient averaged over groups"
    takes_products: ClassVar[bool] = False  # an average needs them multiplied out
    overwrites_first: ClassVar[bool] = True  # the new average takes its place

    momentum: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        check_momentum(self.momentum)

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_WeighedByAverage":
        """Return the accumulator of a new group."""
        return _WeighedByAverage(self, layout, num_batches, memory)

    def check_memory(self, memory: Memory, layout: Layout) -> Memory:
        """Refuse an average of other parameters."""
        if not memory:
            return {}
        if set(memory) != {"average", "started"}:
            raise ValueError(f"memory has the keys {sorted(memory)}, expected ['average', 'started']")
        average = check_average("average", memory["average"], dict(enumerate(layout.parameters)))
        return {"average": average, "started": memory["started"].to(layout.parameters[0].device)}


class _WeighedByAverage(BilevelAccumulator):
    def __init__(self, rule: MomentumBilevel, layout: Layout, num_batches: int, memory: Memory) -> None:
        super().__init__(rule, layout, num_batches)
        self._momentum = rule.momentum
        self._memory = memory

    def validate(self, gradients: Gradients) -> Tensor:
        sq_norms = self._blocks.sq_norms(gradients)
        self._validation_is_finite = torch.isfinite(sq_norms).all()
        self._validation = self._average_with(gradients, self._validation_is_finite)
        self._validation_norms = self._blocks.sq_norms(self._validation).sqrt()
        return sq_norms

    def finish(self, losses: Tensor) -> Outcome[BilevelReport]:
        self._memory["average"] = self._validation
        self._memory["started"] = self._started | self._validation_is_finite
        return super().finish(losses)

    def _average_with(self, gradients: Gradients, finite: Tensor) -> Gradients:
        """Return the average with these gradients, which are used up; as it was, if they are not finite."""
        gradients = widen_gradients(gradients)
        silence_unless(finite, gradients)
        momentum = finite.new_full((), self._momentum, dtype=next(iter(gradients.values())).dtype)
        kept = torch.where(finite, momentum * self._started, torch.ones_like(momentum))
        return blend_gradients(self._memory.get("average", {}), gradients, kept)

    @property
    def _started(self) -> Tensor | bool:
        """Whether a finite gradient is in the average."""
        return self._memory.get("started", False)
