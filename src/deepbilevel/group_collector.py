"""The loop contract: k gradients collected one at a time, then one gradient filled into ``.grad``.

This module knows when a mini-batch's gradient is complete and where the result goes. It does not know the rule
that turns k gradients into one: that is a subclass, which sees each gradient once, in the order of the group.
It never sees the optimizer either; whatever follows ``fill`` is the caller's ordinary loop. Whole groups in one call
are ``group_step.py``.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import (
    AnyGradients,
    Blocks,
    Gradients,
    emptied_gradients,
    multiply_out,
    put_gradients,
    take_gradients,
)
from deepbilevel.group_checks import check_gradients, check_loss
from deepbilevel.loss_scaling import LossScaling
from deepbilevel.parameters import Parameters, owning_modules, unique_parameters
from deepbilevel.sharing import Blank, Spread, share_group, wide_zeros

ReportT = TypeVar("ReportT")


class GroupCollector(ABC, Generic[ReportT]):
    """One step over a group: k losses in, ``.grad`` filled, a report out.

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``. Frozen parameters may be
            among them; freezing and unfreezing later is noticed.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop. Pass unscaled losses to :meth:`backward`; ``fill``
            leaves scaled gradients, so ``scaler.unscale_``, ``scaler.step`` and ``scaler.update`` follow as usual.
        process_group: who shares a group. ``None``: all processes, if ``torch.distributed`` is initialised when this
            object is made and has more than one; else nobody. ``False``: nobody. A group of torch's: its members.
            The model itself must be given, and hold the same numbers everywhere.
        spread: what they share. ``"batches"``: the k mini-batches of one group; mini-batch i belongs to rank i mod
            size, and ``fill`` leaves the same gradient and the same report, of all k, in all processes. ``"groups"``:
            every process has a whole group and a report of its own, and ``fill`` leaves the mean of their gradients.
            ``"images"``: of each mini-batch some of the images; for parameters sharded by ``fully_shard``, where it
            goes without saying. Elsewhere ``None`` is ``"batches"``. Give :class:`~deepbilevel.MatchedGroups` the same.
    """

    num_batches: int
    tolerates_bad_batches: bool = False
    """Whether a mini-batch whose gradient is not finite is left out, instead of spoiling the step."""

    def __init__(
        self,
        model_or_parameters: Parameters,
        *,
        scaler: GradScaler | None,
        process_group: ProcessGroupChoice,
        spread: Spread | None,
    ) -> None:
        self._parameters = unique_parameters(model_or_parameters)
        is_module = isinstance(model_or_parameters, nn.Module)
        self._owners = owning_modules(model_or_parameters) if is_module else None
        self._share = share_group(process_group, spread, model_or_parameters if is_module else None, self._parameters)
        self._scaling = LossScaling(scaler)
        self._share.check_shards("scaler keeps a loss scale in each process" if self._scaling.is_on else None)
        self._losses: list[Tensor] = []
        self._dropout_seed: int | None = None

    @abstractmethod
    def _add(self, gradients: Gradients) -> None:
        """Take in the next mini-batch's gradients; they are the rule's to keep or overwrite."""

    def _add_any(self, gradients: AnyGradients) -> None:
        """Take in gradients of which some are not multiplied out; a rule that can do with those says so here."""
        self._add(multiply_out(gradients))

    @abstractmethod
    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, ReportT]:
        """Turn what was taken in into one gradient, a mask of the mini-batches that were finite, and a report."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop everything taken in since the last group."""

    def _check_owners(self, argument: str) -> None:
        if self._owners is None:
            raise TypeError(
                f"{argument} needs to know which module owns which parameter; "
                "pass the model itself as model_or_parameters, not its parameters"
            )

    @property
    def _num_own(self) -> int:
        """How many of the k mini-batches this process collects."""
        return self._share.num_own(self.num_batches)

    @property
    def _place(self) -> int:
        """The place in the group of the mini-batch that comes next, counted from zero."""
        return self._share.place(self.num_collected)

    def _of_group(self, *columns: Tensor) -> tuple[Tensor, ...]:
        """Return numbers per mini-batch for the whole group; for :meth:`_combine`, once, before :meth:`_over_group`."""
        return self._share.of_group(columns, self.num_batches)

    def _over_group(
        self, *sums: Gradients, blanks: Sequence[Blank] | None = None, numbers: Tensor | None = None
    ) -> Tensor | None:
        """Complete sums over the own mini-batches to sums over the whole group, in place; ``numbers`` are returned.

        Args:
            sums: of one entry per parameter; all that :meth:`_combine` needs, for each call is a reduction.
            blanks: for each sum what makes the zeros of a parameter that has none here; wide ones unless given.
            numbers: a tensor that is to be added up as well.
        """
        return self._share.over_group(sums, [wide_zeros] * len(sums) if blanks is None else blanks, numbers)

    def _blocks_of(self, owners: Sequence[int]) -> Blocks:
        """Return blocks that measure whole parameters."""
        return Blocks(owners, self._share.over_shards)

    def _mean_over_parameters(self, total: Tensor, gradients: Gradients) -> Tensor:
        """Return a sum over the numbers of all gradients as their mean."""
        (total,) = self._share.over_shards([total.reshape(1)])
        return total.squeeze() / sum(self._parameters[position].numel() for position in gradients)

    def _beside_gradients(self) -> list[tuple[Gradients, Blank]]:
        """Return what is to be averaged together with the gradient, and zeros for what is not there."""
        return []

    def _get_ready(self) -> None:
        """Start what may go on during the backward pass that is about to run."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self._settings().items())
        return f"{type(self).__name__}({settings})"

    @property
    def num_collected(self) -> int:
        """How many mini-batches of the current group have been handed to :meth:`backward`, in this process."""
        return len(self._losses)

    @property
    def full(self) -> bool:
        """Whether all k mini-batches of the group, or this process's share, are in and :meth:`fill` is due."""
        return self.num_collected == self._num_own

    def backward(self, loss: Tensor) -> None:
        """Collect one mini-batch: call it where ``loss.backward()`` stood. ``.grad`` is empty until :meth:`fill`."""
        if self.full:
            raise RuntimeError(f"backward() was called once more than {self._expected()} times; call fill() first")
        check_loss(loss, self._device())
        self._scaling.lower_after_overflow()
        self._share.check_equality(self._settings)
        self._get_ready()
        with emptied_gradients(self._parameters):
            self._scaling.scaled(loss).backward()
            gradients = self._share.own_parts(take_gradients(self._parameters))
            check_gradients(gradients)
        try:
            self._share.collect_statistics()
            self._scaling.unscale(gradients, loss.device)
            self._add(gradients)
        except BaseException:  # out of memory, Ctrl-C: a group that is half added up is of no use
            self.reset()
            raise
        self._losses.append(loss.detach().reshape(()))

    def fill(self) -> ReportT:
        """Write the group's gradient to ``.grad``, replacing what is there, and start the next group."""
        if not self.full:
            raise RuntimeError(
                f"fill() needs a full group, got {self.num_collected} of {self._expected()} losses; "
                "call backward() for each mini-batch first, and fill() when `full` is true"
            )
        gradients, finite, report = self._combine(self._share.over_images(torch.stack(self._losses)))
        results, blanks = zip((gradients, wide_zeros), *self._beside_gradients(), strict=True)
        finite = self._share.average(results, blanks, finite)
        self._scaling.scale_result(gradients, finite)
        put_gradients(self._parameters, self._share.joined_parts(gradients))
        self.reset()
        return report

    def reset(self) -> None:
        """Drop a half-collected group, as after an interrupted epoch; ``.grad`` is left alone.

        Several processes must all do so at the same place. BatchNorm's running statistics go back to before the group.
        """
        self._losses = []
        self._dropout_seed = None
        self._share.forget()
        self._forget()

    @contextmanager
    def shared_dropout(self) -> Generator[None]:
        """Give every forward pass of the current group the same random numbers, so the same dropout masks.

        Put it around the forward pass alone. Random numbers outside (augmentation, sampling) are not disturbed: the
        masks come from a seed that is drawn once per group.
        """
        if self._dropout_seed is None:
            self._dropout_seed = self._share.number_of_first(int(torch.randint(2**62, ())), self._device())
        device = self._device()
        accelerators = [] if device.type == "cpu" else [device]
        with torch.random.fork_rng(accelerators, device_type="cuda" if device.type == "cpu" else device.type):
            torch.manual_seed(self._dropout_seed)
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return the settings as plain numbers and strings, for a checkpoint taken between two groups.

        No gradient is held then, and dropout masks come from torch's own random state. So there is nothing else to
        save, unless a rule remembers something: then its tensors, this process's, are among the settings.
        """
        self._check_between_groups("state_dict()")
        return self._settings()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self._check_between_groups("load_state_dict()")
        expected = self._settings()
        if set(state) != set(expected):
            raise ValueError(f"state has the keys {sorted(state)}, expected {sorted(expected)}")
        self._choose(**state)

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Return the arguments of :meth:`_choose` that are in force."""

    @abstractmethod
    def _choose(self, **settings: Any) -> None:
        """Put settings in force, ``num_batches`` among them; refuse everything before changing anything."""

    def _device(self) -> torch.device:
        devices = {parameter.device for parameter in self._parameters}
        if len(devices) > 1:
            names = ", ".join(sorted(map(str, devices)))
            raise ValueError(f"the parameters are spread over several devices ({names}); move the model to one")
        return devices.pop()

    def _check_between_groups(self, call: str) -> None:
        if self._losses:
            raise RuntimeError(
                f"{call} falls into a group of which {self.num_collected} of {self._num_own} mini-batches are "
                "collected; call it right after fill(), or reset() first"
            )

    def _expected(self) -> str:
        own = "" if self._share.is_whole else f"this process's {self._num_own} of "
        return f"{own}num_batches={self.num_batches}"
