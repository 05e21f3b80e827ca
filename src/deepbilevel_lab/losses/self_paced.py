"""Self-paced learning by a predefined curriculum: MentorNet without clean data (Jiang et al. 2018).

It knows how large the losses of the last mini-batches were, and no image by its number.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.losses.objective import (
    Objective,
    ObjectiveSpec,
    Task,
    check_at_least_zero,
    check_share,
    epochs_of,
)
from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class SelfPaced(ObjectiveSpec):
    """``mean_i v_i CE_i`` with ``v_i = clip(1 - (CE_i - e) / gamma, 0, 1)``, a constant to the gradient.

    ``e <- decay e + (1 - decay) * percentile of the mini-batch's losses`` comes first; it begins with the first one.

    Attributes:
        percentile: of a mini-batch's losses, in percent: about that share of the images counts fully.
        decay: how much of ``e`` stays with every mini-batch.
        burn_in: the share of the epochs in which every ``v_i`` is 1.
        gamma: how far above ``e`` a loss may lie before it no longer counts; 0 leaves out what lies above at all.
    """

    kind: ClassVar[str] = "self-paced"
    description: ClassVar[str] = "images of large loss count less (MentorNet's predefined curriculum)"

    percentile: float = 75.0
    decay: float = 0.5
    burn_in: float = 0.18
    gamma: float = 1.0

    def __post_init__(self) -> None:
        validate(self)
        if not 0 < self.percentile <= 100:
            raise SpecError(f"percentile must be more than 0 and at most 100, got {self.percentile}")
        check_share(decay=self.decay)
        if not 0 <= self.burn_in <= 1:
            raise SpecError(f"burn_in is a share of the epochs, so it must lie in 0 .. 1, got {self.burn_in}")
        check_at_least_zero(gamma=self.gamma)

    def why_not_spread(self) -> str | None:
        """Return what it remembers."""
        return "remembers the losses of the mini-batches before, in their order"

    def make(self, task: Task) -> Objective:
        """Make the objective, which has seen no loss yet."""
        return _SelfPaced(self, task)

    def weights(self, excess: Tensor) -> Tensor:
        """Return how much images count whose losses exceed ``e`` by that much.

        >>> SelfPaced(gamma=2.0).weights(torch.tensor([-1.0, 0.0, 0.5, 3.0]))
        tensor([1.0000, 1.0000, 0.7500, 0.0000])
        >>> SelfPaced(gamma=0.0).weights(torch.tensor([-1.0, 0.0, 0.5, 3.0]))
        tensor([1., 1., 0., 0.])
        """
        if self.gamma == 0:
            return (excess <= 0).to(excess.dtype)
        return (1 - excess / self.gamma).clamp(0, 1)


class _SelfPaced(Objective):
    threshold: Tensor

    def __init__(self, spec: SelfPaced, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self._burn_in = epochs_of(spec.burn_in, task.num_epochs)
        self.register_buffer("threshold", torch.tensor(torch.nan))

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        scores = self.scores(model, images)
        losses = F.cross_entropy(scores, labels, reduction="none")
        level = losses.detach().quantile(self._spec.percentile / 100).to(self.threshold.dtype)
        decay = self._spec.decay
        # Nobody waits for the device to say whether this is the first.
        self.threshold.copy_(torch.where(self.threshold.isnan(), level, decay * self.threshold + (1 - decay) * level))
        if self.epoch < self._burn_in:
            return F.cross_entropy(scores, labels)
        return (self._spec.weights(losses.detach() - self.threshold) * losses).mean()
