"""Auxiliary-image regularisation (AIR; Azadi et al. 2016): a linear classifier that few images may move.

The authors put a group norm over images on a linear classifier of fixed features, and solve for it with ADMM over a set
of auxiliary images. Here features are those the network has learned when half of its epochs are over, the auxiliary
images are those of the mini-batch itself, and the last layer goes on by the run's own optimizer.
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
    check_warm_up,
    epochs_of,
    last_linear,
    with_features,
)
from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class AuxiliaryImages(ObjectiveSpec):
    """After a warm-up with plain cross-entropy: ``CE(W h + b) + strength * mean_i |W h_i|``, h fixed, W and b trained.

    ``W h_i`` is how the classifier answers to image i, C numbers that form a group: a norm that is not squared makes
    whole groups small, so that images which fit no others hardly move the scores. h is the input of the last layer,
    computed as in evaluation (no dropout, running statistics of BatchNorm).

    Attributes:
        warm_up: the share of the epochs in which the whole network is trained with plain cross-entropy.
        strength: of the group norm.
    """

    kind: ClassVar[str] = "auxiliary-images"
    description: ClassVar[str] = "after a warm-up only the last layer, with a group norm over images (AIR)"
    only_with_sgd: ClassVar[str | None] = (
        "trains the last layer alone and gives every mini-batch the same pull, which a gradient rule would take for "
        "agreement"
    )

    warm_up: float = 0.5
    strength: float = 0.01

    def __post_init__(self) -> None:
        validate(self)
        if not 0 < self.warm_up < 1:
            raise SpecError(f"warm_up must be more than 0 and less than 1, got {self.warm_up}")
        check_at_least_zero(strength=self.strength)

    def check_epochs(self, num_epochs: int) -> None:
        """Refuse a run with no epoch before, or after, features are frozen."""
        check_warm_up(self.kind, self.warm_up, num_epochs)

    def make(self, task: Task) -> Objective:
        """Make the objective."""
        return _AuxiliaryImages(self, task)


class _AuxiliaryImages(Objective):
    def __init__(self, spec: AuxiliaryImages, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self._num_classes = task.num_classes
        self._first_frozen = epochs_of(spec.warm_up, task.num_epochs)
        last_linear(task.network, task.num_classes)  # refuses networks without one

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        if self.epoch < self._first_frozen:
            return F.cross_entropy(self.scores(model, images), labels)
        features = self._frozen_features(model, images)
        last = last_linear(model, self._num_classes)
        answers = F.linear(features, last.weight)
        return F.cross_entropy(last(features), labels) + self._spec.strength * answers.norm(dim=1).mean()

    @torch.no_grad()
    def _frozen_features(self, model: nn.Module, images: Tensor) -> Tensor:
        was_training = model.training
        model.eval()
        try:
            return with_features(self.scores, model, images, self._num_classes)[1]
        finally:
            model.train(was_training)
