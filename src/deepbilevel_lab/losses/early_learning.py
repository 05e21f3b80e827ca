"""Early-learning regularisation (Liu et al. 2020): the network is held to what it believed of an image before.

It knows each image by its number, and never looks at clean labels.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.losses.objective import Objective, ObjectiveSpec, Task, check_at_least_zero, check_share
from deepbilevel_lab.specs import validate

_LEAST = 1e-4  # the authors'; so the logarithm stays finite


@dataclass(frozen=True)
class EarlyLearning(ObjectiveSpec):
    """``CE + strength * mean_i log(1 - <p_i, t_i>)``, where ``t_i <- memory t_i + (1 - memory) p_i`` comes first.

    The sum over classes rewards agreement with the remembered ``t_i``, and more so the less a label is believed.

    Attributes:
        strength: of the second term; the authors' lambda (3 for CIFAR-10, 7 for CIFAR-100).
        memory: how much of ``t_i`` stays when an image is seen again; the authors' beta.
    """

    kind: ClassVar[str] = "early-learning"
    description: ClassVar[str] = "agree with what was believed of each image before its label was memorised"
    not_with_mixing: ClassVar[str | None] = "remembers what was predicted for each image, and a blend is none of them"

    strength: float = 3.0
    memory: float = 0.7

    def __post_init__(self) -> None:
        validate(self)
        check_at_least_zero(strength=self.strength)
        check_share(memory=self.memory)

    def why_not_spread(self) -> str | None:
        """Return what it remembers."""
        return "remembers each image where it was seen"

    def make(self, task: Task) -> Objective:
        """Make the objective, which has seen nothing yet."""
        return _EarlyLearning(self, task)


class _EarlyLearning(Objective):
    targets: Tensor

    def __init__(self, spec: EarlyLearning, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self.register_buffer("targets", torch.zeros(len(task.labels), task.num_classes))

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        scores = self.scores(model, images)
        probabilities = scores.softmax(dim=1).clamp(_LEAST, 1 - _LEAST)
        believed = probabilities.detach() / probabilities.detach().sum(dim=1, keepdim=True)
        memory = self._spec.memory
        targets = memory * self.targets[indices] + (1 - memory) * believed.to(self.targets.dtype)
        self.targets[indices] = targets
        agreement = (targets * probabilities).sum(dim=1)
        return F.cross_entropy(scores, labels) + self._spec.strength * torch.log1p(-agreement).mean()
