"""A layer behind the network that learns the noise, so that the network need not (Goldberger & Ben-Reuven 2017).

Trained is what the layer makes of the network's p; evaluated and saved is p. Two relatives are settings: the layer
behind dropout (Jindal et al. 2016), and a stochastic matrix that is trained itself (Sukhbaatar et al. 2015).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.losses.objective import (
    Objective,
    ObjectiveSpec,
    Predict,
    Task,
    check_at_least_zero,
    check_share,
    check_warm_up,
    epochs_of,
    last_linear,
    with_features,
)
from deepbilevel_lab.losses.transition import log_noisy
from deepbilevel_lab.specs import SpecError, validate

_LEAST = 1e-6  # in the place of 0 where a logarithm follows
_PACE = 0.01  # of a matrix that is trained itself: a sure prediction with another label pulls it by 1 / p


@dataclass(frozen=True)
class NoiseLayer(ObjectiveSpec):
    """``-log (T^T p)_y`` with ``T = softmax(B)`` by rows, where B is trained together with the network.

    After a warm-up with plain cross-entropy, B starts at the logarithm of the network's confusions:
    ``T_ij = sum_x p_i(x) [label of x is j] / sum_x p_i(x)``. The authors train a network for that beforehand.

    Attributes:
        depends_on: ``label``: T is the same for all images. ``features``: ``T_ij = softmax_j(u_ij . h + b_ij)`` with h
            the input of the network's last layer, and u starting at 0; it has C * C * len(h) parameters.
        warm_up: the share of the epochs with plain cross-entropy.
        dropout: the rate at which entries of p are left out before the layer, the others growing by ``1 / (1 - rate)``.
        linear: train T itself. It starts at the identity, every row is put back to the nearest probabilities before it
            is used, and the loss has ``decay / 2 * mean_i |T_i|^2`` added, without which T would stay where it is.
        decay: of ``linear``.
    """

    kind: ClassVar[str] = "noise-layer"
    description: ClassVar[str] = "a layer that learns how labels went wrong, behind the network while it trains"
    not_with_mixing: ClassVar[str | None] = "learns how single labels came to be wrong, and a blend has two"

    depends_on: Literal["label", "features"] = "label"
    warm_up: float = 0.5
    dropout: float = 0.0
    linear: bool = False
    decay: float = 0.1

    def __post_init__(self) -> None:
        validate(self)
        if not 0 < self.warm_up < 1:
            raise SpecError(f"warm_up must be more than 0 and less than 1, got {self.warm_up}")
        check_share(dropout=self.dropout)
        check_at_least_zero(decay=self.decay)
        if self.linear and self.depends_on == "features":
            raise SpecError("linear trains one matrix for all images, so depends_on must be 'label'; drop one of them")

    def check_epochs(self, num_epochs: int) -> None:
        """Refuse a run with no epoch before, or after, the layer starts."""
        check_warm_up(self.kind, self.warm_up, num_epochs)

    def why_not_spread(self) -> str | None:
        """Return what a matrix that is trained itself would do."""
        matrix = "with loss.linear puts its matrix right in every forward pass, of which processes have more or fewer"
        return matrix if self.linear else None

    def make(self, task: Task) -> Objective:
        """Make the objective; its layer changes nothing until the warm-up is over."""
        if self.linear:
            return _Linear(self, task)
        return _OfFeatures(self, task) if self.depends_on == "features" else _OfLabel(self, task)


class _Layer(Objective):
    """Warm-up and dropout; what the layer does is a subclass."""

    def __init__(self, spec: NoiseLayer, task: Task) -> None:
        super().__init__(task)
        self._spec = spec
        self._first_noisy = epochs_of(spec.warm_up, task.num_epochs)
        self._num_classes = task.num_classes
        self._labels = task.labels

    def begin_epoch(self, epoch: int, predict_training_set: Predict) -> None:
        super().begin_epoch(epoch, predict_training_set)
        if epoch == self._first_noisy:
            self.start(predict_training_set)

    def start(self, predict_training_set: Predict) -> None:
        """Set the layer to where its training begins."""

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        if self.epoch < self._first_noisy:
            return F.cross_entropy(self.scores(model, images), labels)
        return self.noisy_loss(model, images, labels)

    @abstractmethod
    def noisy_loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss behind the layer."""

    def log_p(self, scores: Tensor) -> Tensor:
        log_p = scores.log_softmax(dim=1)
        if self._spec.dropout == 0:
            return log_p
        kept = F.dropout(torch.ones_like(log_p), self._spec.dropout, training=self.training)
        return log_p + kept.clamp(min=_LEAST).log()


class _OfLabel(_Layer):
    def __init__(self, spec: NoiseLayer, task: Task) -> None:
        super().__init__(spec, task)
        # A flat one: weight decay, which is for the weights of layers, would pull T towards guessing.
        self.noise = nn.Parameter(torch.zeros(task.num_classes**2))

    def start(self, predict_training_set: Predict) -> None:
        confusion = mean_confusion(predict_training_set().to(self._labels.device), self._labels)
        with torch.no_grad():
            self.noise.copy_(confusion.clamp(min=_LEAST).log().flatten())

    def noisy_loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        log_transition = self.noise.view(self._num_classes, -1).log_softmax(dim=1)
        return -log_noisy(self.log_p(self.scores(model, images)), log_transition.T[labels]).mean()


class _OfFeatures(_OfLabel):
    def __init__(self, spec: NoiseLayer, task: Task) -> None:
        super().__init__(spec, task)
        width = last_linear(task.network, task.num_classes).in_features
        self.weight = nn.Parameter(torch.zeros(task.num_classes**2, width))

    def noisy_loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        scores, features = with_features(self.scores, model, images, self._num_classes)
        of_images = F.linear(features, self.weight, self.noise).unflatten(1, (self._num_classes, -1))
        log_transitions = of_images.log_softmax(dim=2)  # [n, classes, labels]
        columns = log_transitions.gather(2, labels[:, None, None].expand(-1, self._num_classes, 1)).squeeze(2)
        return -log_noisy(self.log_p(scores), columns).mean()


class _Linear(_Layer):
    def __init__(self, spec: NoiseLayer, task: Task) -> None:
        super().__init__(spec, task)
        self.transition = nn.Parameter(torch.eye(task.num_classes).flatten())

    def noisy_loss(self, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():  # the optimizer knows no bounds
            rows = nearest_probabilities(self.transition.view(self._num_classes, -1))
            self.transition.copy_(rows.flatten())
        slow = _PACE * self.transition + (1 - _PACE) * self.transition.detach()  # the same numbers, a smaller gradient
        transition = slow.view(self._num_classes, -1)
        noisy = (self.log_p(self.scores(model, images)).exp() * transition.T[labels]).sum(dim=1)
        pull = self._spec.decay / 2 * transition.square().sum(dim=1).mean()
        return -noisy.clamp(min=_LEAST).log().mean() + pull


def mean_confusion(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return how the labels as given are shared out where the network sees class i, a row for each i.

    >>> mean_confusion(torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]), torch.tensor([0, 0, 1]))
    tensor([[0.7500, 0.2500],
            [0.5000, 0.5000]])
    """
    num_classes = probabilities.shape[1]
    counts = probabilities.T @ F.one_hot(labels, num_classes).to(probabilities.dtype)
    return counts / counts.sum(dim=1, keepdim=True).clamp(min=torch.finfo(counts.dtype).tiny)


def nearest_probabilities(rows: Tensor) -> Tensor:
    """Return for each row the nearest one that is not negative and adds up to 1 (Duchi et al. 2008).

    >>> nearest_probabilities(torch.tensor([[0.2, 0.8], [1.5, 0.0], [0.0, 0.0]]))
    tensor([[0.2000, 0.8000],
            [1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    largest_first = rows.sort(dim=1, descending=True).values
    counts = torch.arange(1, rows.shape[1] + 1, device=rows.device)
    shifts = (largest_first.cumsum(dim=1) - 1) / counts
    num_positive = (largest_first > shifts).sum(dim=1, keepdim=True)
    return (rows - shifts.gather(1, num_positive - 1)).clamp(min=0)
