"""The training loop around a rule: k losses in, ``.grad`` filled, a report out.

This module knows when a mini-batch's gradient is complete and where the result goes. What becomes of k gradients is the
rule's (``rules/``). It never calls ``optimizer.step()``: after ``fill`` the caller clips, steps and schedules as usual.

    for x, y in loader:
        step.backward(criterion(model(x), y))
        if step.full:
            step.fill()
            optimizer.step()
"""

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from deepbilevel.checks import check_alone, check_count, check_gradients, check_loss
from deepbilevel.contract import Accumulator, Memory, Outcome, ReportT, Rule
from deepbilevel.gradients import (
    AnyGradients,
    Gradients,
    Layout,
    Parameters,
    emptied_gradients,
    owning_modules,
    put_gradients,
    take_gradients,
    unique_parameters,
)
from deepbilevel.loss_scaling import LossScaling
from deepbilevel.shrunken_updates import ShrunkenUpdates

Batch = TypeVar("Batch")


class GroupStep(Generic[ReportT]):
    """One step over a group of k mini-batches, by any rule.

    >>> from deepbilevel import GroupStep
    >>> from deepbilevel.rules.and_mask import AndMask
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> step = GroupStep(model, AndMask(), num_batches=2)
    >>> for x in torch.tensor([[[1.0, 4.0]], [[3.0, -1.0]]]):
    ...     step.backward(model(x).sum())
    >>> report = step.fill()
    >>> model.weight.grad  # the mini-batches agree on the sign of the first parameter only
    tensor([[2., 0.]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``. Frozen parameters may be
            among them; freezing and unfreezing later is noticed.
        rule: how the k gradients become one.
        num_batches: k, the number of mini-batches in a group.
        optimizer: needed only by rules that scale the optimizer's update (``shrinks_updates``). Two hooks are
            registered on it, and removed when this object is deleted.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop. Pass unscaled losses to :meth:`backward`; ``fill``
            leaves scaled gradients, so ``scaler.unscale_``, ``scaler.step`` and ``scaler.update`` follow as usual.
    """

    def __init__(
        self,
        model_or_parameters: Parameters,
        rule: Rule[ReportT],
        *,
        num_batches: int,
        optimizer: Optimizer | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        if not isinstance(rule, Rule):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"rule must be a rule, got {rule!r}; make one from its class, as in BilevelRule(mu=0.01)")
        self._num_batches = check_count(
            "num_batches", num_batches, rule.min_batches, remedy=f"rule {rule.kind} compares that many mini-batches"
        )
        self._rule = rule
        self.optimizer, self.scaler = optimizer, scaler
        self._model = model_or_parameters if isinstance(model_or_parameters, nn.Module) else None
        if rule.needs_layers and self._model is None:
            raise TypeError(
                f"{rule.needs_layers} needs to know which module owns which parameter; "
                "pass the model itself as model_or_parameters, not its parameters"
            )
        self._parameters = unique_parameters(model_or_parameters)
        self._layout = self._make_layout()
        self._scaling = LossScaling.of(scaler)
        self._updates: ShrunkenUpdates | None = ShrunkenUpdates.of(
            optimizer, self._parameters, wanted=rule.shrinks_updates
        )
        self._memory: Memory = {}
        self._accumulator: Accumulator[ReportT] | None = None
        self._losses: list[Tensor] = []
        self._dropout_seed: int | None = None
        self.alone_on_purpose = False

    @property
    def rule(self) -> Rule[ReportT]:
        """How the k gradients become one."""
        return self._rule

    @property
    def num_batches(self) -> int:
        """K, the number of mini-batches in a group."""
        return self._num_batches

    @property
    def num_collected(self) -> int:
        """How many mini-batches of the current group have been handed to :meth:`backward`."""
        return len(self._losses)

    @property
    def full(self) -> bool:
        """Whether all mini-batches of the group are in and :meth:`fill` is due."""
        return self.num_collected == self._num_expected

    def backward(self, loss: Tensor) -> None:
        """Compute and collect the gradient of one mini-batch; call this instead of ``loss.backward()``.

        ``.grad`` is set to None and stays so until :meth:`fill`: gradients of other backward passes in between are
        lost. When :attr:`full` is true, call :meth:`fill`, then step the optimizer; ``zero_grad`` is not needed.
        """
        if self.full:
            raise RuntimeError(
                f"backward() was called once more than {self._describe_group()} times; call fill() first"
            )
        check_loss(loss, self.device)
        self._before_backward()
        with emptied_gradients(self._parameters):
            gradients = self._gradients_of(loss)
            check_gradients(gradients)
        try:
            self.collect(gradients, loss)
        except BaseException:  # out of memory, Ctrl-C: a group that is half added up is of no use
            self.reset()
            raise

    def collect(self, gradients: AnyGradients, loss: Tensor) -> None:
        """Take in the gradients of the next mini-batch and its loss; :meth:`backward` is this after autograd."""
        if self._accumulator is None:
            self._accumulator = self._rule.start(self._layout, self._num_batches, self._memory)
            if self._updates is not None:
                self._updates.factors = {}  # the gradient they belong to is no longer there
        self._add(self._accumulator, gradients)
        self._losses.append(loss.detach().reshape(()))

    def fill(self) -> ReportT:
        """Write the group's gradient to ``.grad``, replacing what is there, and start the next group."""
        if not self.full or self._accumulator is None:
            raise RuntimeError(
                f"fill() needs a full group, got {self.num_collected} of {self._describe_group()} losses; "
                "call backward() for each mini-batch first, and fill() when `full` is true"
            )
        try:
            outcome = self._combine(self._accumulator, torch.stack(self._losses))
            if self._scaling is not None:
                self._scaling.scale_result(outcome.gradients, self._left_out_any(outcome.report))
            self._put(outcome.gradients)
            if self._updates is not None and outcome.factors is not None:
                self._updates.factors = outcome.factors
        finally:  # also after an error: sums are used up, and a second attempt would fill nonsense
            self._start_again()
        return outcome.report

    def reset(self) -> None:
        """Drop a half-collected group, as after an interrupted epoch; ``.grad`` is left alone."""
        self._start_again()

    def step_over(
        self, group: Iterable[Batch], loss_of: Callable[[Batch], Tensor], *, shared_dropout: bool = False
    ) -> ReportT:
        """Run a whole group: forward and backward of k mini-batches, then :meth:`fill`.

        Args:
            group: the k mini-batches; or an iterator, of which the next k are taken.
            loss_of: computes the loss of one mini-batch, forward pass included.
            shared_dropout: draw the same dropout masks for all k forward passes.
        """
        try:
            for batch in self.next_batches(group, "step_over()"):
                with self.shared_dropout() if shared_dropout else nullcontext():
                    loss = loss_of(batch)
                self.backward(loss)
        except BaseException:
            self.reset()
            raise
        return self.fill()

    def step_at_once(
        self,
        group: Iterable[Batch],
        losses_of: Callable[[Batch], Tensor],
        *,
        samples_per_pass: int | None = None,
    ) -> ReportT:
        """Run a whole group in few passes over many mini-batches; see :func:`deepbilevel.one_pass.step_at_once`."""
        from deepbilevel.one_pass import step_at_once  # imported here because most users never need it

        return step_at_once(self, group, losses_of, samples_per_pass=samples_per_pass)

    def next_batches(self, group: Iterable[Batch], call: str) -> Iterator[Batch]:
        """Yield the mini-batches of the next group; refuse a group of another size, or one that ends too soon."""
        if self._losses:
            raise RuntimeError(
                f"{call} starts a new group, but {self.num_collected} mini-batches are already collected; "
                "call fill() or reset() first"
            )
        # A loader's iterator has a length too, but is meant to be taken from.
        if isinstance(group, Sized) and not isinstance(group, Iterator) and len(group) != self._num_expected:
            raise ValueError(
                f"group has {len(group)} mini-batches, expected {self._describe_group()}; "
                "to take the next ones of a loader, pass iter(loader) and keep it"
            )
        number = 0
        for batch in islice(group, self._num_expected):
            number += 1
            yield batch
        if number < self._num_expected:
            raise ValueError(
                f"group ended after {number} mini-batches, expected {self._describe_group()}; "
                "let the sampler yield whole groups"
            )

    @contextmanager
    def shared_dropout(self) -> Generator[None]:
        """Give every forward pass of the current group the same random numbers, so the same dropout masks.

        Put it around the forward pass alone. Random numbers outside (augmentation, sampling) are not disturbed: the
        masks come from a seed that is drawn once per group.
        """
        if self._dropout_seed is None:
            self._dropout_seed = self._draw_dropout_seed()
        device = self.device
        accelerators = [] if device.type == "cpu" else [device]
        with torch.random.fork_rng(accelerators, device_type="cuda" if device.type == "cpu" else device.type):
            if accelerators:
                torch.manual_seed(self._dropout_seed)
            else:  # the CPU's alone: `torch.manual_seed` would reseed accelerators too, which are not put back
                torch.default_generator.manual_seed(self._dropout_seed)
            yield

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._rule!r}, num_batches={self._num_batches})"

    @property
    def model(self) -> nn.Module | None:
        """The module that was given, if it was one."""
        return self._model

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters whose gradients are combined, each once."""
        return self._parameters

    @property
    def scales_losses(self) -> bool:
        """Whether there is a loss scaler, and it is switched on."""
        return self._scaling is not None

    @property
    def is_shared(self) -> bool:
        """Whether other processes take part."""
        return False

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        devices = {parameter.device for parameter in self._parameters}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise ValueError(f"the parameters are spread over several devices ({names}); move the model to one")
        return devices.pop()

    # The methods below are overridden in `distributed/`; these are the versions for one process.

    @property
    def _num_expected(self) -> int:
        """How many mini-batches of a group are collected here."""
        return self._num_batches

    def _describe_group(self) -> str:
        return f"num_batches={self._num_batches}"

    def _make_layout(self) -> Layout:
        return Layout(self._parameters, None if self._model is None else owning_modules(self._model))

    def _before_backward(self) -> None:
        if not self._losses and not self.is_shared and not self.alone_on_purpose:
            check_alone()
        if self._scaling is not None:
            self._scaling.lower_after_overflow()

    def _gradients_of(self, loss: Tensor) -> Gradients:
        if self._scaling is not None:
            return self._scaling.gradients_of(loss, self._parameters)
        loss.backward()
        return take_gradients(self._parameters)

    def _add(self, accumulator: Accumulator[ReportT], gradients: AnyGradients) -> None:
        accumulator.add(gradients, self.num_collected)  # pyright: ignore[reportArgumentType] (takes_products)

    def _combine(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        return accumulator.finish(losses)

    def _put(self, gradients: Gradients) -> None:
        put_gradients(self._parameters, gradients)

    def _draw_dropout_seed(self) -> int:
        return int(torch.randint(2**62, ()))

    def _start_again(self) -> None:
        self._losses = []
        self._dropout_seed = None
        self._accumulator = None

    def _settings(self) -> dict[str, Any]:
        return {"rule": {"kind": self._rule.kind, **dataclasses.asdict(self._rule)}, "num_batches": self._num_batches}

    def _left_out_any(self, report: Any) -> Tensor:
        """Whether a mini-batch that was not finite was left out, so that the scaler cannot see it in ``.grad``."""
        return ~self._rule.without_trace(report.finite).all()

    def _check_between_groups(self, call: str) -> None:
        if self._losses:
            raise RuntimeError(
                f"{call} falls into a group of which {self.num_collected} of {self._num_expected} mini-batches are "
                "collected; call it between two groups, or reset() first"
            )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as ``rule.mu`` and so on, for error messages."""
    return {
        **{f"rule.{name}": value for name, value in settings["rule"].items()},
        "num_batches": settings["num_batches"],
    }
