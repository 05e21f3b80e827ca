"""Losses corrected for known or estimated noise (Patrini et al. 2017; Natarajan et al. 2013 for two classes).

``T[i, j]`` is the probability that an image of class i is labelled j. It is the same for all images of a class; who
made labels wrong is not known here. The authors train one network to estimate T and then another with the corrected
loss. Here one network does both, the first part of its epochs with plain cross-entropy, so that it sees as many images
as with other losses.
"""

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.losses.objective import Objective, ObjectiveSpec, Predict, Task, check_warm_up, epochs_of
from deepbilevel_lab.specs import SpecError, validate

Matrix = tuple[tuple[float, ...], ...]

_LEAST_LOG = -16.118095  # log 1e-7, as the authors have it: a loss with negative parts would have no lower bound
_FLATTEST = 1e-2  # singular values below that share of the largest are noise that an inverse would multiply
_NOT_WITH_MIXING = "describes how single labels came to be wrong, and a blend has two"


@dataclass(frozen=True)
class _Correction(ObjectiveSpec):
    """What both corrections have in common.

    Attributes:
        warm_up: the share of the epochs with plain cross-entropy, at whose end T is estimated.
        percentile: which image is taken for a sure member of its class: of the probabilities that training images
            have of being in class i, the largest below this percentile; its probabilities are row i of T. 100 takes
            the largest of all.
        transition: T where it is known, a row for each class; there is no warm-up then. Rows are scaled to add up to 1.
    """

    not_with_mixing: ClassVar[str | None] = _NOT_WITH_MIXING

    warm_up: float = 0.5
    percentile: float = 97.0
    transition: Matrix | None = None

    def __post_init__(self) -> None:
        validate(self)
        if not 0 < self.warm_up < 1:
            raise SpecError(f"warm_up must be more than 0 and less than 1, got {self.warm_up}")
        if not 0 < self.percentile <= 100:
            raise SpecError(f"percentile must be more than 0 and at most 100, got {self.percentile}")
        if self.transition is not None:
            _check_transition(self.transition)

    def check_epochs(self, num_epochs: int) -> None:
        """Refuse a run with no epoch before, or after, T is estimated."""
        if self.transition is None:
            check_warm_up(self.kind, self.warm_up, num_epochs)


@dataclass(frozen=True)
class ForwardCorrection(_Correction):
    """``-log (T^T p)_y``: the prediction is made noisy like the label before the two are compared."""

    kind: ClassVar[str] = "forward-correction"
    description: ClassVar[str] = "predictions pass through the estimated noise before they meet the labels"

    def make(self, task: Task) -> Objective:
        """Make the objective; T is the identity until it is estimated."""
        return _Forward(self, task)


@dataclass(frozen=True)
class BackwardCorrection(_Correction):
    """``(T^-1 l)_y`` with ``l_c = -log p_c``: what noise adds to the loss is taken out again, on average.

    The mean over noisy labels is the loss of the clean one, whatever p is. Single losses may be negative. Where T has
    (almost) no inverse, the pseudo-inverse stands for it.
    """

    kind: ClassVar[str] = "backward-correction"
    description: ClassVar[str] = "the loss is freed from the estimated noise, so that it is right on average"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.transition is not None and _inverse(torch.tensor(self.transition, dtype=torch.float64))[1]:
            raise SpecError(
                "transition has no inverse, or almost none: its rows are too much alike for the noise to be undone; "
                "take loss forward-correction"
            )

    def make(self, task: Task) -> Objective:
        """Make the objective; T is the identity until it is estimated."""
        return _Backward(self, task)


class _Corrected(Objective):
    transition: Tensor

    def __init__(self, spec: _Correction, task: Task) -> None:
        super().__init__(task)
        known = spec.transition
        if known is not None and len(known) != task.num_classes:
            raise SpecError(f"loss.transition has {len(known)} rows, but the data has {task.num_classes} classes")
        self._spec = spec
        self._first_corrected = 0 if known is not None else epochs_of(spec.warm_up, task.num_epochs)
        self.register_buffer("transition", torch.eye(task.num_classes))

    def begin_epoch(self, epoch: int, predict_training_set: Predict) -> None:
        super().begin_epoch(epoch, predict_training_set)
        known = self._spec.transition
        if epoch == self._first_corrected:
            self.adopt(
                estimate_transition(predict_training_set(), self._spec.percentile)
                if known is None
                else torch.tensor(known, dtype=torch.float64)
            )

    def adopt(self, transition: Tensor) -> None:
        self.transition.copy_(transition / transition.sum(dim=1, keepdim=True))

    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        scores = self.scores(model, images)
        if self.epoch < self._first_corrected:
            return F.cross_entropy(scores, labels)
        return self.corrected(scores.log_softmax(dim=1), labels)

    @abstractmethod
    def corrected(self, log_p: Tensor, labels: Tensor) -> Tensor:
        """Return the corrected loss."""


class _Forward(_Corrected):
    def corrected(self, log_p: Tensor, labels: Tensor) -> Tensor:
        return -log_noisy(log_p, self.transition.log().T[labels]).mean()


class _Backward(_Corrected):
    inverse: Tensor

    def __init__(self, spec: _Correction, task: Task) -> None:
        super().__init__(spec, task)
        self.register_buffer("inverse", torch.eye(task.num_classes))

    def adopt(self, transition: Tensor) -> None:
        super().adopt(transition)
        inverse, num_lost = _inverse(self.transition.cpu().double())  # not every device has float64
        if num_lost:
            warnings.warn(
                f"the estimated transition has almost no inverse: {num_lost} of {len(inverse)} directions are left "
                "uncorrected; take forward-correction, which needs no inverse, or a larger loss.warm_up",
                stacklevel=2,
            )
        self.inverse.copy_(inverse)

    def corrected(self, log_p: Tensor, labels: Tensor) -> Tensor:
        weights = self.inverse[labels]
        # Only what counts negatively is bounded: a label that is missed by far must still be learned.
        costs = -torch.where(weights < 0, log_p.clamp(min=_LEAST_LOG), log_p)
        return (weights * costs).sum(dim=1).mean()


def log_noisy(log_p: Tensor, log_columns: Tensor) -> Tensor:
    """Return ``log (T^T p)_y`` of each image.

    Args:
        log_p: the logarithms of p, ``[n, C]``.
        log_columns: for each image, those of the column of T that belongs to its label, ``[n, C]``.

    >>> p, columns = torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[0.2, 0.4, 0.0]])
    >>> log_noisy(p.log(), columns.log()).exp()  # 0.5 * 0.2 + 0.25 * 0.4
    tensor([0.2000])
    """
    return (log_p + log_columns).logsumexp(dim=1)


def estimate_transition(probabilities: Tensor, percentile: float) -> Tensor:
    """Return T by the authors' anchors: row i is what is predicted for a sure, but not too sure, member of class i.

    >>> sure = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]])
    >>> estimate_transition(sure, 100.0)
    tensor([[0.9000, 0.1000],
            [0.3000, 0.7000]])
    """
    rows: list[Tensor] = []
    for own in probabilities.T:
        candidates = own
        if percentile < 100:
            limit = own.double().quantile(percentile / 100, interpolation="higher")
            # Where all are alike, none is below.
            candidates = torch.where(own < limit, own, -1.0)
        rows.append(probabilities[int(candidates.argmax())])
    return torch.stack(rows)


def _inverse(transition: Tensor) -> tuple[Tensor, int]:
    """Return the inverse, or the pseudo-inverse, and how many directions have none."""
    singular = torch.linalg.svdvals(transition)
    lost = int((singular < _FLATTEST * singular[0]).sum())
    return torch.linalg.pinv(transition, rtol=_FLATTEST), lost


def _check_transition(transition: Matrix) -> None:
    size = len(transition)
    if size < 2 or any(len(row) != size for row in transition):
        raise SpecError(
            f"transition must have as many columns as rows, one for each class, got {size} rows of "
            f"{sorted({len(row) for row in transition})}"
        )
    for number, row in enumerate(transition):
        if min(row) < 0 or sum(row) <= 0:
            raise SpecError(f"transition must hold probabilities, got row {number}: {list(row)}")
    for number, column in enumerate(zip(*transition, strict=True)):
        if sum(column) <= 0:
            raise SpecError(f"transition must allow every label, but no class is ever labelled {number} by it")
