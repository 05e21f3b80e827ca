"""Co-teaching (Han et al. 2018): two networks, each of which chooses the images the other learns from.

The second network lives in the objective and is trained by the same optimizer; evaluated and saved is the first.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.losses.objective import Objective, ObjectiveSpec, Task, check_share, epochs_of
from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class CoTeaching(ObjectiveSpec):
    """The sum of two cross-entropies, each over the images whose loss is small for the *other* network.

    Of n images each network learns from ``int((1 - rate) n)``, at least one, where the rate grows evenly from 0 in the
    first epoch to ``forget_rate``. Every network gets the gradient of its own cross-entropy, since neither depends on
    the parameters of the other; the loss that is reported is that of both.

    Attributes:
        forget_rate: the share of the images that is left out; should be the rate of wrong labels.
        gradual: the share of the epochs over which it grows (the authors': 10 of 200).
    """

    kind: ClassVar[str] = "co-teaching"
    description: ClassVar[str] = "two networks choose images of small loss for each other; set forget_rate to the noise"
    not_with_mixing: ClassVar[str | None] = "takes labels of large loss for wrong, and of a blend's two either may be"
    only_with_sgd: ClassVar[str | None] = (
        "trains two networks at once, each on images of its own, so no one gradient says how far mini-batches agree"
    )

    forget_rate: float = 0.2
    gradual: float = 0.05

    def __post_init__(self) -> None:
        validate(self)
        check_share(forget_rate=self.forget_rate)
        if not 0 <= self.gradual <= 1:
            raise SpecError(f"gradual is a share of the epochs, so it must lie in 0 .. 1, got {self.gradual}")

    def make(self, task: Task) -> Objective:
        """Make the objective with its own network, of other initial weights."""
        return _CoTeaching(self, task)

    def rate(self, epoch: int, num_epochs: int) -> float:
        """Return the share that is left out in an epoch, counted from 0.

        >>> [CoTeaching(0.2, gradual=0.3).rate(epoch, num_epochs=10) for epoch in range(4)]
        [0.0, 0.1, 0.2, 0.2]
        """
        growing = epochs_of(self.gradual, num_epochs)
        if growing == 0:
            return self.forget_rate
        return self.forget_rate * min(epoch / max(growing - 1, 1), 1.0)


class _CoTeaching(Objective):
    def __init__(self, spec: CoTeaching, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self._num_epochs = task.num_epochs
        self.partner = task.make_network()
        both = zip(task.network.parameters(), self.partner.parameters(), strict=True)
        if all(torch.equal(one.cpu(), other.cpu()) for one, other in both):
            raise SpecError(
                "loss co-teaching needs two networks that differ, but both begin with the same weights; "
                "leave network.weights out, or take weights that were trained for other classes"
            )

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        own, others = self.scores(model, images), self.scores(self.partner, images)
        num_kept = max(1, int((1 - self._spec.rate(self.epoch, self._num_epochs)) * len(labels)))
        for_own, for_others = _easiest(others, labels, num_kept), _easiest(own, labels, num_kept)
        return F.cross_entropy(own[for_own], labels[for_own]) + F.cross_entropy(others[for_others], labels[for_others])


def _easiest(scores: Tensor, labels: Tensor, count: int) -> Tensor:
    """Return the places of the smallest losses, in the order of the images."""
    losses = F.cross_entropy(scores.detach(), labels, reduction="none")
    return losses.argsort(stable=True)[:count].sort().values
