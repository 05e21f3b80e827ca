"""Mistakes of a training loop that raise no error by themselves. Each is noticed here, and said once.

Nothing here changes what a step computes. A sampler and a step never meet: one is asked by a loader, the other by the
loop. This module remembers which sampler began a pass last, and which groups are open.
"""

import sys
import warnings
import weakref
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

# What optimizers keep that divide by the size of the gradients they got: Adam and its kin, RMSprop, Adagrad, Adafactor.
_SIZES = {"exp_avg_sq", "square_avg", "exp_inf", "sum", "row_var", "variance"}


class _Step(Protocol):
    parameters: list[Tensor]

    @property
    def rule(self) -> Any: ...
    @property
    def num_batches(self) -> int: ...
    @property
    def num_collected(self) -> int: ...


class _Sampler(Protocol):
    num_batches: int


_latest: "weakref.ref[_Sampler] | None" = None
_guards: "weakref.WeakSet[Guard]" = weakref.WeakSet()


def note_pass(sampler: _Sampler) -> None:
    """Remember the sampler that has just begun a pass."""
    global _latest
    _latest = weakref.ref(sampler)


class Guard:
    """Watches one step.

    Args:
        step: is watched, and not kept alive.
    """

    def __init__(self, step: _Step) -> None:
        self._step = weakref.ref(step)
        self._said: set[str] = set()
        self._labels: Tensor | None = None
        _guards.add(self)

    def begin_group(self, step: _Step, loss: Tensor) -> None:
        """Look at the first loss of a group, and at where its mini-batches come from."""
        self._labels = None
        sampler = None if _latest is None else _latest()
        if sampler is not None and step.rule.matches and sampler.num_batches != step.num_batches:
            self._say(
                "group size",
                f"MatchedGroups yields groups of num_batches={sampler.num_batches} mini-batches, but this step "
                f"compares num_batches={step.num_batches}, so that its groups are not matched; give both the same "
                "number, or take the loader of the step, as in bilevel.loader(dataset, labels, batch_size=16, seed=0)",
            )
        if _is_divided(loss, step.num_batches):
            self._say(
                "division",
                f"the loss was divided by {step.num_batches}, the number of mini-batches in a group, as loops that "
                "accumulate gradients do; the rule normalises by itself, and would work with another mu: pass the loss "
                "undivided to backward()",
            )

    def check_labels(self, step: _Step, labels: Tensor | Sequence[int]) -> None:
        """Refuse a mini-batch with other labels than the first of its group, where the rule wants the same."""
        if not step.rule.matches:
            return
        found = torch.as_tensor(labels).detach()
        if found.dim() != 1 or found.is_floating_point():
            raise TypeError(
                f"labels must be one class per sample, got shape {tuple(found.shape)} of {found.dtype}; leave labels "
                "out where samples have several, or real-valued targets"
            )
        found = found.sort().values
        if not step.num_collected or self._labels is None:
            self._labels = found
        elif not torch.equal(found, self._labels.to(found.device)):
            raise ValueError(
                f"labels of mini-batch {step.num_collected + 1} of the group are not those of the first one; rule "
                f"{step.rule.kind} compares mini-batches with the same labels: take the loader of the step, as in "
                "bilevel.loader(dataset, labels, batch_size=16, seed=0), or MatchedGroups; if unmatched groups are "
                "meant, leave labels out"
            )

    def before_optimizer_step(self, optimizer: Optimizer, has_closure: bool) -> None:
        """Look at an optimizer that is about to step; a closure may finish the group within that."""
        step = self._step()
        if step is None or not (step.num_collected or step.rule.shrinks_gradients) or not _trains(optimizer, step):
            return
        if step.num_collected and not has_closure:
            self._say(
                "mid-group",
                f"optimizer.step() was called after {step.num_collected} of num_batches={step.num_batches} "
                "mini-batches of a group, where .grad is empty; call it after fill(), when `full` is true",
            )
        elif step.rule.shrinks_gradients and any(_SIZES & set(state) for state in optimizer.state.values()):
            self._say(
                "size",
                f"{type(optimizer).__name__} divides by the size of the gradients it gets, which undoes the shrinking "
                f"by rule {step.rule.kind}; take shrink='update' with optimizer=..., or SGD",
            )

    def _say(self, subject: str, message: str) -> None:
        if subject not in self._said:
            self._said.add(subject)
            warnings.warn(message, stacklevel=_stack_level_of_caller())


def check_not_dealt_again(dealt: Collection[object]) -> None:
    """Refuse loaders that Accelerate has split among processes, if their sampler has been dealt out before.

    Args:
        dealt: samplers that yield this process's part only.
    """
    accelerate: Any = sys.modules.get("accelerate.state")
    for loader in [] if accelerate is None else accelerate.GradientState().dataloader_references:
        shards = getattr(loader, "batch_sampler", None)
        if any(sampler is getattr(shards, "batch_sampler", None) for sampler in dealt):
            raise ValueError(
                "accelerator.prepare() has split a loader of MatchedGroups among the processes, which share() has "
                "done before; leave the loader out of prepare(), and move its batches to accelerator.device"
            )


def _before_optimizer_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    has_closure = any(callable(each) for each in (*args[1:], *kwargs.values()))
    for guard in list(_guards):
        guard.before_optimizer_step(optimizer, has_closure)


# A step does not know the optimizer that follows it, and need not.
register_optimizer_step_pre_hook(_before_optimizer_step)


def _trains(optimizer: Optimizer, step: _Step) -> bool:
    ours = set(map(id, step.parameters))
    return any(id(each) in ours for group in optimizer.param_groups for each in group["params"])


def _is_divided(loss: Tensor, divisor: int) -> bool:
    """Return whether the last thing that happened to a loss was a division by this number, after a mean was taken."""
    last: Any = loss.grad_fn
    if last is None or last.name() not in ("DivBackward0", "MulBackward0"):
        return False
    other = getattr(last, "_saved_other", None)
    if not isinstance(other, Tensor) or other.numel() != 1 or other.device.type != "cpu":  # reading others would wait
        return False
    before = last.next_functions[0][0]
    # A sum over a mini-batch of that many samples is a mean only after it.
    is_sum = before is None or before.name() == "SumBackward0" or getattr(before, "_saved_reduction", 1) == 2
    factor = float(other) if last.name() == "MulBackward0" else 1 / float(other or torch.inf)
    return not is_sum and abs(factor * divisor - 1) < 1e-6


def _stack_level_of_caller() -> int:
    """Return how far up the first caller outside of torch and this library is: the line to be mended."""
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("deepbilevel", "torch"):
        frame, level = frame.f_back, level + 1
    return level
