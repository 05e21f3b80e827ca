"""Any optimizer of ``torch.optim`` by name, with its arguments checked before a run begins."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deepbilevel.checks import choose
from deepbilevel.contract import ADDED_LATER
from deepbilevel_lab.networks.fine_tuning import number_layers
from deepbilevel_lab.specs import SpecError, validate

_REFUSED = {
    "LBFGS": "it evaluates the loss several times per step, while a group's gradient is formed once",
    "Muon": "it takes matrices only, while networks have convolutions and biases",
    "SparseAdam": "it takes sparse gradients only",
}
_USUAL: Mapping[str, Any] = {}  # stands for arguments that nobody gave
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
        arguments: what else the class takes; unless given, a ``momentum`` of 0.9 for SGD, torch's own for the others.
        decay: which parameters weight decay applies to: ``weights`` of layers, as the paper's authors do it, or
            ``all``, biases and BatchNorm included.
        layer_decay: the factor from one layer of the network to the one before it, for networks that have been trained
            already: 0.8 lets the first of ten layers learn a tenth as fast as the last.

    >>> OptimizerSpec("Adam", lr=0.001, arguments={"betas": (0.9, 0.99)}).arguments
    {'betas': [0.9, 0.99]}
    """

    name: str = "SGD"
    lr: float = 0.01
    arguments: Mapping[str, Any] = field(default_factory=lambda: _USUAL, hash=False)  # dictionaries have no hash
    decay: Literal["weights", "all"] = "weights"
    layer_decay: float | None = field(default=None, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        if self.arguments is _USUAL:
            object.__setattr__(self, "arguments", {"momentum": 0.9} if self.name == "SGD" else {})
        validate(self)
        kind = OPTIMIZERS[choose("optimizer", self.name, OPTIMIZERS)]
        if self.name in _REFUSED:
            raise SpecError(f"optimizer {self.name} cannot be used here: {_REFUSED[self.name]}; take SGD or Adam")
        if self.lr <= 0:
            raise SpecError(f"lr must be positive, got {self.lr}")
        if self.layer_decay is not None and not 0 < self.layer_decay < 1:
            raise SpecError(f"layer_decay must lie between 0 and 1, got {self.layer_decay}; 0.8 is usual")
        taken = {name: each for name, each in inspect.signature(kind).parameters.items() if name not in _OURS}
        for name, value in self.arguments.items():
            choose(f"argument of optimizer {self.name}", name, taken)
            if isinstance(value, bool) != isinstance(taken[name].default, bool):
                wanted = "true or false" if isinstance(taken[name].default, bool) else "a number"
                raise SpecError(f"argument {name} of optimizer {self.name} must be {wanted}, got {value!r}")
        try:
            plain = {name: _as_floats(value) for name, value in self.arguments.items()}
            object.__setattr__(self, "arguments", plain)
            self._try_out()
        except Exception as error:  # whatever torch stumbles over
            raise SpecError(f"optimizer {self.name} refuses its arguments {dict(self.arguments)}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> "OptimizerSpec":
        """Read a name alone; the arguments are then the usual ones."""
        return cls(text)

    def make(self, model: nn.Module, *, network: nn.Module | None = None) -> Optimizer:
        """Make the optimizer of a model's trainable parameters; ``network`` is what has layers in it."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups: list[dict[str, Any]] = [{"params": trained}]
        if self.decay == "weights" and self._weight_decay():
            flat = [parameter for parameter in trained if parameter.ndim < 2]
            groups = [{"params": [parameter for parameter in trained if parameter.ndim >= 2]}]
            if flat:
                groups.append({"params": flat, "weight_decay": 0.0})
        if self.layer_decay is not None:
            groups = _by_layer(groups, number_layers(network or model), self.layer_decay)
        return OPTIMIZERS[self.name](groups, lr=self.lr, **self.arguments)  # pyright: ignore[reportCallIssue]

    def _weight_decay(self) -> float:
        own = inspect.signature(OPTIMIZERS[self.name]).parameters.get("weight_decay")  # AdamW has one by default
        return self.arguments.get("weight_decay", 0.0 if own is None else own.default)

    def _try_out(self) -> None:
        """Take two steps: many arguments are looked at in the first, some in the second."""
        model = nn.ParameterList([torch.zeros(1, 1), torch.zeros(1)])  # a layer would draw random numbers
        optimizer = self.make(model)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        for _ in range(2):
            optimizer.step()


def _by_layer(groups: list[dict[str, Any]], numbers: Mapping[Tensor, int], decay: float) -> list[dict[str, Any]]:
    """Return the groups of parameters divided by layer, each with its factor on the learning rate."""
    divided: list[dict[str, Any]] = []
    for group in groups:
        by_number: dict[int, list[Tensor]] = {}
        for parameter in group["params"]:
            by_number.setdefault(numbers.get(parameter, 0), []).append(parameter)
        divided += [
            {**group, "params": parameters, "lr_scale": decay**number} for number, parameters in by_number.items()
        ]
    return divided


def _as_floats(value: Any) -> Any:
    """Write 1 as 1.0 and -0.0 as 0.0, so that they have the same id; all numbers that optimizers take are floats."""
    if isinstance(value, list):
        return [_as_floats(each) for each in value]
    return value + 0.0 if type(value) in (int, float) else value
