"""Any optimizer of ``torch.optim`` by name, with its arguments checked before a run begins."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

from deepbilevel.choice import choose
from deepbilevel.specs import SpecError, validate

_REFUSED = {
    "LBFGS": "it evaluates the loss several times per step, while a group's gradient is formed once",
    "SparseAdam": "it takes sparse gradients only",
}
_OURS = {"params", "lr", "foreach", "maximize", "capturable", "differentiable", "fused"}


def _optimizers() -> dict[str, type[Optimizer]]:
    members = inspect.getmembers(torch.optim, inspect.isclass)
    return {name: each for name, each in members if issubclass(each, Optimizer) and each is not Optimizer}


OPTIMIZERS: Mapping[str, type[Optimizer]] = _optimizers()


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer, its learning rate and its other arguments.

    Attributes:
        name: a class of ``torch.optim``.
        lr: the learning rate the schedule starts from.
        arguments: what else the class takes, ``momentum`` for instance.
        decay: which parameters weight decay applies to: ``weights`` of layers, as the paper's authors do it, or
            ``all``, biases and BatchNorm included.

    >>> OptimizerSpec("Adam", lr=0.001, arguments={"betas": (0.9, 0.99)}).arguments
    {'betas': [0.9, 0.99]}
    """

    name: str = "SGD"
    lr: float = 0.01
    arguments: Mapping[str, Any] = field(default_factory=lambda: {"momentum": 0.9})
    decay: Literal["weights", "all"] = "weights"

    def __post_init__(self) -> None:
        validate(self)
        kind = OPTIMIZERS[choose("optimizer", self.name, OPTIMIZERS)]
        if self.name in _REFUSED:
            raise SpecError(f"optimizer {self.name} cannot be used here: {_REFUSED[self.name]}; take SGD or Adam")
        if self.lr <= 0:
            raise SpecError(f"lr must be positive, got {self.lr}")
        known = [name for name in inspect.signature(kind).parameters if name not in _OURS]
        for name in self.arguments:
            choose(f"argument of optimizer {self.name}", name, known)
        # Lists, not tuples: so they come back from JSON, and the spec stays the same value.
        plain = {name: list(value) if isinstance(value, tuple) else value for name, value in self.arguments.items()}
        object.__setattr__(self, "arguments", plain)
        try:
            self.make(nn.Linear(1, 1, bias=False))
        except (TypeError, ValueError) as error:
            raise SpecError(f"optimizer {self.name} refuses its arguments {plain}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> "OptimizerSpec":
        """Read a name alone; the arguments are then torch's own."""
        return cls() if text == cls.name else cls(text, arguments={})

    def make(self, model: nn.Module) -> Optimizer:
        """Make the optimizer of a model's trainable parameters."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained}]
        if self.decay == "weights" and self.arguments.get("weight_decay"):
            flat = [parameter for parameter in trained if parameter.ndim < 2]
            groups = [{"params": [parameter for parameter in trained if parameter.ndim >= 2]}]
            if flat:
                groups.append({"params": flat, "weight_decay": 0.0})
        return OPTIMIZERS[self.name](groups, lr=self.lr, **self.arguments)  # pyright: ignore[reportCallIssue]
