"""What a step is besides its loop: what it was made with, its checkpoints, and what it refuses.

The loop is in ``step.py``.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from deepbilevel.checks import check_count
from deepbilevel.contract import Memory, ReportT, Rule
from deepbilevel.gradients import Gradients, Layout
from deepbilevel.guards import Guard
from deepbilevel.parameters import Autograd, Parameters, device_of, owning_modules, unique_parameters

if TYPE_CHECKING:
    from deepbilevel.shrunken_updates import ShrunkenUpdates

Batch = TypeVar("Batch")


class StepBase(ABC, Generic[ReportT]):
    """A rule, the parameters it works on, and what it keeps between groups.

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        rule: how the k gradients become one.
        num_batches: k.
        optimizer: for rules that scale its update.
        scaler: for float16.

    Attributes:
        model: the module that was given, if it was one.
        parameters: those whose gradients are combined, each once.
        num_expected: how many mini-batches of a group are collected here: k, unless processes share it.
        is_shared: whether other processes take part.
        alone_on_purpose: whether it is known that this process works by itself, although there are others.
    """

    is_shared = False
    alone_on_purpose = False

    def __init__(
        self,
        model_or_parameters: Parameters,
        rule: Rule[ReportT],
        num_batches: int,
        optimizer: Optimizer | None,
        scaler: GradScaler | None,
    ) -> None:
        if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"rule must be a rule, got {rule!r}; make one from its class, as in BilevelRule(mu=0.01)")
        self._num_batches = self.num_expected = check_count(
            "num_batches", num_batches, rule.min_batches, remedy=f"rule {rule.kind} compares that many mini-batches"
        )
        self._rule = rule
        self.model = model_or_parameters if isinstance(model_or_parameters, nn.Module) else None
        if rule.needs_layers and self.model is None:
            raise TypeError(
                f"{rule.needs_layers} needs to know which module owns which parameter; "
                "pass the model itself as model_or_parameters, not its parameters"
            )
        self.parameters: list[Tensor] = unique_parameters(model_or_parameters)
        self._layout = Layout(self.parameters, None if self.model is None else owning_modules(self.model))
        self.optimizer, self.scaler = optimizer, scaler
        self._autograd = self._make_autograd()
        self._updates: ShrunkenUpdates | None = self._make_updates()
        self._memory: Memory = {}
        self._dropout_seed: int | None = None
        self._guard = Guard(self)

    def _check_model_unchanged(self) -> None:
        """Refuse parameters that the model got later: no rule would see them, and their ``.grad`` would only grow."""
        if self.model is None:
            return
        known = set(map(id, self.parameters))
        for name, parameter in self.model.named_parameters():
            if id(parameter) not in known and parameter.requires_grad:
                raise ValueError(
                    f"the model has a parameter {name!r} that it did not have when this step was made; a layer was "
                    f"replaced or added: make the {type(self).__name__} and the optimizer anew, after the last change"
                )

    def _make_autograd(self) -> Autograd:
        if self.scaler is None:
            return Autograd(self.parameters)
        from deepbilevel.loss_scaling import autograd_with  # imported here because few need it

        return autograd_with(self.scaler, self.parameters)

    def _make_updates(self) -> "ShrunkenUpdates | None":
        if self.optimizer is None and not self._rule.shrinks_updates:
            return None
        from deepbilevel.shrunken_updates import ShrunkenUpdates  # imported here because few need it

        return ShrunkenUpdates.of(self.optimizer, self.parameters, wanted=self._rule.shrinks_updates)

    def _shrink_updates(self, factors: Gradients) -> None:
        """Let the next steps of the optimizer go this far, by rules that shrink updates; others have no factors."""
        if self._updates is not None:
            self._updates.factors = factors

    @property
    def rule(self) -> Rule[ReportT]:
        """How the k gradients become one."""
        return self._rule

    @property
    def num_batches(self) -> int:
        """K, the number of mini-batches in a group."""
        return self._num_batches

    @property
    @abstractmethod
    def num_collected(self) -> int:
        """How many mini-batches of the current group are in."""

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return device_of(self.parameters)

    def shared_dropout(self) -> AbstractContextManager[None]:
        """Give every forward pass of the current group the same random numbers, so the same dropout masks.

        Put it around the forward pass alone. Random numbers outside (augmentation, sampling) are not disturbed: the
        masks come from a seed that is drawn once per group.
        """
        from deepbilevel.shared_dropout import seeded  # imported here because few need it

        if self._dropout_seed is None:
            self._dropout_seed = self._draw_dropout_seed()
        return seeded(self._dropout_seed, self.device)

    def _draw_dropout_seed(self) -> int:
        return int(torch.randint(2**62, ()))

    def state_dict(self) -> dict[str, Any]:
        """Return rule, k, and what the rule keeps between groups, for a checkpoint taken between two groups.

        No gradient is held then. The optimizer, the scaler and torch's random state are the caller's to save.
        """
        self._check_between_groups("state_dict()")
        return {**self._settings(), "memory": dict(self._memory)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned; other settings than this step's are refused."""
        self._check_between_groups("load_state_dict()")
        settings = self._settings()
        expected = {*settings, "memory"}
        if set(state) != expected:
            raise ValueError(f"state has the keys {sorted(state)}, expected {sorted(expected)}")
        saved, own = _flat(state), _flat(settings)
        for name, ours in own.items():
            if name in saved and saved[name] != ours:
                raise ValueError(
                    f"state was saved with {name}={saved[name]!r}, this step has {name}={ours!r}; "
                    "build the step with the same rule and settings to continue"
                )
        if set(saved) != set(own):
            raise ValueError(f"state has the settings {sorted(saved)}, expected {sorted(own)}")
        self._memory = self._rule.check_memory(dict(state["memory"]), self._layout)

    def _settings(self) -> dict[str, Any]:
        return {"rule": {"kind": self._rule.kind, **dataclasses.asdict(self._rule)}, "num_batches": self._num_batches}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._rule!r}, num_batches={self._num_batches})"

    def next_batches(self, group: Iterable[Batch], call: str) -> Iterator[Batch]:
        """Yield the mini-batches of the next group; refuse a group of another size, or one that ends too soon."""
        if self.num_collected:
            raise RuntimeError(
                f"{call} starts a new group, but {self.num_collected} mini-batches are already collected; "
                "call fill() or reset() first"
            )
        # A loader's iterator has a length too, but is meant to be taken from.
        if isinstance(group, Sized) and not isinstance(group, Iterator) and len(group) != self.num_expected:
            raise ValueError(
                f"group has {len(group)} mini-batches, expected {self._describe_group()}; "
                "to take the next ones of a loader, pass iter(loader) and keep it"
            )
        number = 0
        for batch in islice(group, self.num_expected):
            number += 1
            yield batch
        if number < self.num_expected:
            raise ValueError(
                f"group ended after {number} mini-batches, expected {self._describe_group()}; "
                "let the sampler yield whole groups"
            )

    def _check_not_full(self) -> None:
        if self.num_collected == self.num_expected:
            raise RuntimeError(
                f"backward() was called once more than {self._describe_group()} times; call fill() first"
            )

    def _check_full(self) -> None:
        if self.num_collected < self.num_expected:
            raise RuntimeError(
                f"fill() needs a full group, got {self.num_collected} of {self._describe_group()} losses; "
                "call backward() for each mini-batch first, and fill() when `full` is true"
            )

    def _check_between_groups(self, call: str) -> None:
        if self.num_collected:
            raise RuntimeError(
                f"{call} falls into a group of which {self.num_collected} of {self.num_expected} mini-batches are "
                "collected; call it between two groups, or reset() first"
            )

    def _describe_group(self) -> str:
        whole = f"num_batches={self._num_batches}"
        return whole if self.num_expected == self._num_batches else f"this process's {self.num_expected} of {whole}"


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as ``rule.mu`` and so on, for error messages."""
    return {
        **{f"rule.{name}": value for name, value in settings["rule"].items()},
        "num_batches": settings["num_batches"],
    }
