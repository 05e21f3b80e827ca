"""Plain averaging behind the loop contract: what every rule is compared with.

With a group of one mini-batch it is ordinary training, with k it is gradient accumulation.
"""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import Gradients
from deepbilevel.group_report import GroupReport
from deepbilevel.group_step import GroupStep
from deepbilevel.parameters import Parameters
from deepbilevel.sharing import Spread


class Average(GroupStep[GroupReport]):
    """Fill ``.grad`` with the mean of a group's gradients; nothing is skipped, as in a plain loop.

    >>> model = torch.nn.Linear(1, 1, bias=False)
    >>> average = Average(model, num_batches=2)
    >>> for x in (1.0, 3.0):
    ...     average.backward(model(torch.tensor([[x]])).sum())
    >>> average.fill().weights, model.weight.grad
    (tensor([0.5000, 0.5000]), tensor([[2.]]))

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: how many mini-batches make a step.
        leave_out: how many of them, from the first, are computed and not learned from, as bilevel does with one.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop.
        process_group: who works together: all processes of ``torch.distributed`` where it is initialised (``None``),
            nobody (``False``), or the members of a process group.
        spread: what they share: the mini-batches of one group (``"batches"``, unless given), or nothing but the
            result (``"groups"``): every process then has a group of its own, and gradients are averaged.
    """

    def __init__(
        self,
        model_or_parameters: Parameters,
        *,
        num_batches: int,
        leave_out: int = 0,
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._choose(num_batches=num_batches, leave_out=leave_out)

    def _choose(self, **settings: Any) -> None:
        num_batches, leave_out = settings["num_batches"], settings["leave_out"]
        for name, value in settings.items():
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
        if num_batches < 1:
            raise ValueError(f"num_batches must be at least 1, got {num_batches}")
        if not 0 <= leave_out < num_batches:
            raise ValueError(f"leave_out must lie in 0 .. num_batches - 1 = {num_batches - 1}, got {leave_out}")
        self._share.check(num_batches)
        self.num_batches: int = int(num_batches)  # numpy's do not survive a JSON checkpoint
        self.leave_out: int = int(leave_out)
        self._blocks = self._blocks_of([0] * len(self._parameters))
        self._forget()

    def _settings(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches, "leave_out": self.leave_out}

    def _forget(self) -> None:
        self._sum: Gradients = {}
        self._sq_norms: list[Tensor] = []

    def _add(self, gradients: Gradients) -> None:
        self._sq_norms.append(self._blocks.sq_norms(gradients))
        if self._place < self.leave_out:
            return
        for key, gradient in gradients.items():
            held = self._sum.get(key)
            self._sum[key] = gradient if held is None else held.add_(gradient)

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, GroupReport]:
        num_used = self.num_batches - self.leave_out
        losses, sq_norms = self._of_group(losses, torch.stack(self._sq_norms))
        self._over_group(self._sum, blanks=[torch.zeros_like])
        for gradient in self._sum.values():
            gradient.div_(num_used)  # a plain number: 1/3 as a tensor would have float32's precision
        finite = torch.isfinite(sq_norms).all(dim=1)
        weights = torch.full((num_used,), 1 / num_used, device=losses.device)
        # A scaler finds in `.grad` what was learned from; to be told again, it would lower its scale twice.
        return self._sum, finite[: self.leave_out], GroupReport(weights=weights, losses=losses, finite=finite)
