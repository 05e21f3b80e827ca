"""What the scores of a mini-batch are asked to be, as specs that are also the functions they name.

A loss takes scores ``[N, C]`` and either one class per image, ``[N]``, or the shares of the classes, ``[N, C]``, as
mixing makes them; it returns the mean over images. It knows no network, and not where labels come from. Losses that
remember or learn something are made by ``objective.py``.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class CrossEntropy:
    """``-sum_c y_c log p_c``.

    >>> CrossEntropy()(torch.zeros(1, 4), torch.tensor([2]))  # log 4
    tensor(1.3863)
    """

    kind: ClassVar[str] = "cross-entropy"
    description: ClassVar[str] = "the usual loss"

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        return F.cross_entropy(scores, labels)


@dataclass(frozen=True)
class LabelSmoothing:
    """Cross-entropy with ``(1 - rate) y + rate / C`` for a target (Szegedy et al. 2016).

    >>> LabelSmoothing()(torch.zeros(1, 4), torch.tensor([2]))  # where all classes are alike, so are all targets
    tensor(1.3863)
    """

    kind: ClassVar[str] = "label-smoothing"
    description: ClassVar[str] = "a share of every target is spread over all classes"

    rate: float = 0.1

    def __post_init__(self) -> None:
        validate(self)
        if not 0 <= self.rate < 1:
            raise SpecError(f"rate must lie in 0 .. 1, and 1 would leave nothing of the label, got {self.rate}")

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        return F.cross_entropy(scores, labels, label_smoothing=self.rate)


@dataclass(frozen=True)
class SoftBootstrap:
    """Cross-entropy with ``label_share * y + (1 - label_share) * p`` for a target (Reed et al. 2015).

    The gradient passes through the target too: the second term is the entropy of the prediction, which is made small.

    >>> SoftBootstrap()(torch.zeros(1, 4), torch.tensor([2]))
    tensor(1.3863)
    """

    kind: ClassVar[str] = "bootstrap-soft"
    description: ClassVar[str] = "a share of every target is what the network predicts"

    label_share: float = 0.95

    def __post_init__(self) -> None:
        validate(self)
        _check_share("label_share", self.label_share)

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        log_p = _log_probabilities(scores)
        targets = self.label_share * _shares(labels, log_p) + (1 - self.label_share) * log_p.exp()
        return -(targets * log_p).sum(dim=1).mean()


@dataclass(frozen=True)
class HardBootstrap:
    """Cross-entropy with ``label_share * y + (1 - label_share) * onehot(argmax p)`` for a target (Reed et al. 2015).

    >>> HardBootstrap()(torch.zeros(1, 4), torch.tensor([2]))
    tensor(1.3863)
    """

    kind: ClassVar[str] = "bootstrap-hard"
    description: ClassVar[str] = "a share of every target is the class the network predicts"

    label_share: float = 0.8

    def __post_init__(self) -> None:
        validate(self)
        _check_share("label_share", self.label_share)

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        log_p = _log_probabilities(scores)
        predicted = _shares(log_p.argmax(dim=1), log_p)
        targets = self.label_share * _shares(labels, log_p) + (1 - self.label_share) * predicted
        return -(targets * log_p).sum(dim=1).mean()


@dataclass(frozen=True)
class GeneralizedCrossEntropy:
    """``sum_c y_c (1 - p_c^q) / q`` (Zhang & Sabuncu 2018): cross-entropy for small q, mean absolute error for q = 1.

    >>> GeneralizedCrossEntropy(q=0.5)(torch.zeros(1, 4), torch.tensor([2]))  # (1 - 1/2) / (1/2)
    tensor(1.)
    """

    kind: ClassVar[str] = "generalized-cross-entropy"
    description: ClassVar[str] = "bounded, so that a label the network finds absurd pulls little"

    q: float = 0.7

    def __post_init__(self) -> None:
        validate(self)
        if not 0 < self.q <= 1:
            raise SpecError(f"q must be more than 0 and at most 1, got {self.q}; its limit at 0 is cross-entropy")

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss."""
        log_p = _log_probabilities(scores)
        # expm1: with a small q, 1 - p^q would be the difference of two numbers that are almost the same.
        losses = -torch.expm1(self.q * log_p) / self.q
        return (_shares(labels, log_p) * losses).sum(dim=1).mean()


PureLossSpec = CrossEntropy | LabelSmoothing | SoftBootstrap | HardBootstrap | GeneralizedCrossEntropy


def multi_label_loss(scores: Tensor, labels: Tensor, difficult: Tensor | None = None) -> Tensor:
    """Return the mean binary cross-entropy of images with several labels; those that are ``difficult`` do not count.

    >>> multi_label_loss(torch.zeros(1, 3), torch.tensor([[1.0, 0.0, 1.0]]))  # log 2
    tensor(0.6931)
    """
    losses = F.binary_cross_entropy_with_logits(scores, labels, reduction="none")
    if difficult is None:
        return losses.mean()
    return (losses * ~difficult).sum() / (~difficult).sum().clamp(min=1)


def _log_probabilities(scores: Tensor) -> Tensor:
    return F.log_softmax(scores, dim=1, dtype=torch.promote_types(scores.dtype, torch.float32))


def _shares(labels: Tensor, like: Tensor) -> Tensor:
    """Return labels as shares of the classes, whichever way they are given."""
    shares = F.one_hot(labels, like.shape[1]) if labels.ndim == 1 else labels
    return shares.to(like.dtype)


def _check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise SpecError(f"{name} must be more than 0, or no label would be seen, and at most 1, got {share}")
