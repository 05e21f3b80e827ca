"""Losses that remember or learn something: what they share, and what a run asks of them.

Such a loss is a frozen spec, like every other, but not the function itself: :meth:`ObjectiveSpec.make` returns an
:class:`Objective`, a module. What it remembers are its buffers, what it learns are its parameters; so both are saved
with a run, and its parameters are trained with the network's, by the same rule. This module knows no such loss, and
neither data sets nor training loops.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from deepbilevel_lab.specs import SpecError

Predict = Callable[[], Tensor]
"""Returns the network's probabilities of all training images, ``[N, C]``, in order and in evaluation mode."""


@dataclass(frozen=True, eq=False)
class Task:
    """What an objective is made for.

    Attributes:
        labels: the class of every training image as given, ``[N]``.
        num_classes: C.
        num_epochs: of the whole run.
        network: what is trained. An objective is handed it with every mini-batch, and must not keep it.
        make_network: makes another such network, with other initial weights.
        autocast: what lowers the precision of forward passes, if anything does.
    """

    labels: Tensor
    num_classes: int
    num_epochs: int
    network: nn.Module
    make_network: Callable[[], nn.Module]
    autocast: torch.autocast | None = None


class Objective(nn.Module, ABC):
    """A loss with a memory.

    Attributes:
        epoch: the epoch under way, counted from 0; saved, since a run may go on in the middle of one.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.epoch = 0
        self._autocast = task.autocast

    @abstractmethod
    def forward(self, model: nn.Module, images: Tensor, labels: Tensor, indices: Tensor) -> Tensor:
        """Return the loss of a mini-batch, forward pass included.

        Args:
            model: the network.
            images: as it takes them.
            labels: one class per image, ``[n]``, or the shares of the classes, ``[n, C]``, where images are mixed.
            indices: which of the training images these are.
        """

    def begin_epoch(self, epoch: int, predict_training_set: Predict) -> None:
        """Take note of a new epoch, before its first mini-batch; not called where a run goes on in the middle."""
        self.epoch = epoch

    def scores(self, model: nn.Module, images: Tensor) -> Tensor:
        """Return the scores of a network in float32 at the least, whatever the precision of the forward pass."""
        with self._autocast or nullcontext():
            return at_least_float32(model(images))

    def get_extra_state(self) -> dict[str, Any]:
        """Return what is no tensor, for a checkpoint."""
        return {"epoch": self.epoch}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.epoch = state["epoch"]


class ObjectiveSpec(ABC):
    """The settings of an objective."""

    kind: ClassVar[str]
    description: ClassVar[str]
    not_with_mixing: ClassVar[str | None] = None
    """Why blended images make no sense to it, if they do not."""
    only_with_sgd: ClassVar[str | None] = None
    """Why other methods than sgd make no sense with it, if they do not."""

    @abstractmethod
    def make(self, task: Task) -> Objective:
        """Make the objective of a run."""

    def why_not_spread(self) -> str | None:
        """Return why it would be another loss if mini-batches of a group ran in several processes, if it would."""
        return None

    def check_epochs(self, num_epochs: int) -> None:  # noqa: B027, most do with any number
        """Refuse a run that is too short."""


def epochs_of(share: float, num_epochs: int) -> int:
    """Return how many epochs a share of them is, rounded.

    >>> epochs_of(0.18, 50)
    9
    """
    return round(share * num_epochs)


def check_warm_up(kind: str, warm_up: float, num_epochs: int) -> None:
    """Refuse a run whose warm-up is nothing, or everything."""
    if not 0 < epochs_of(warm_up, num_epochs) < num_epochs:
        raise SpecError(
            f"loss {kind} needs an epoch to warm up and one after that, but loss.warm_up {warm_up} of epochs "
            f"{num_epochs} is {epochs_of(warm_up, num_epochs)}; take more epochs, or another loss.warm_up"
        )


def at_least_float32(numbers: Tensor) -> Tensor:
    """Return numbers in float32, or as they are if they are wider."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))


def last_linear(network: nn.Module, num_classes: int) -> nn.Linear:
    """Return the layer that gives the scores.

    >>> last_linear(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), num_classes=2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != num_classes:
        raise ValueError(
            f"the network's last linear layer is {layers[-1] if layers else 'not there'}, expected one that gives "
            f"{num_classes} scores; a loss that looks at its input cannot be used"
        )
    return layers[-1]


def with_features(
    scores_of: Callable[[nn.Module, Tensor], Tensor], network: nn.Module, images: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Return scores, and the input of the layer that gave them in float32 at the least."""
    caught: list[Tensor] = []

    def catch(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        caught.append(inputs[0])

    hook = last_linear(network, num_classes).register_forward_pre_hook(catch)
    try:
        scores = scores_of(network, images)
    finally:
        hook.remove()
    return scores, at_least_float32(caught[-1])


def check_at_least_zero(**settings: float) -> None:
    """Refuse a negative setting."""
    for name, value in settings.items():
        if value < 0:
            raise SpecError(f"{name} must not be negative, got {value}")


def check_share(**settings: float) -> None:
    """Refuse a setting outside ``0 .. 1``, 1 itself included."""
    for name, value in settings.items():
        if not 0 <= value < 1:
            raise SpecError(f"{name} must be at least 0 and less than 1, got {value}")
