"""The validation gradient averaged over groups. Knows gradients; no rule and no loop."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from deepbilevel.gradients import Gradients, blend_gradients, silence_unless, widen_gradients


class ValidationAverage:
    """``v <- m v + (1 - m) g`` over the finite gradients g of one mini-batch per group; the first of them is ``v``.

    A group that is dropped half-way must leave no trace. So :meth:`with_gradient` returns the new average, and
    :meth:`keep` makes it count when the group is complete.
    """

    def __init__(self) -> None:
        self._gradients: Gradients = {}
        self._started: Tensor | None = None  # whether a finite gradient is in it

    def with_gradient(self, gradients: Gradients, finite: Tensor, momentum: Tensor) -> Gradients:
        """Return the average with these gradients in it, or as it was if they are not finite; they are used up."""
        gradients = widen_gradients(gradients)
        silence_unless(finite, gradients)
        started = torch.zeros_like(finite) if self._started is None else self._started
        return blend_gradients(
            self._gradients, gradients, torch.where(finite, momentum * started, torch.ones_like(momentum))
        )

    def keep(self, gradients: Gradients, finite: Tensor) -> None:
        """Make what :meth:`with_gradient` returned the average."""
        self._gradients = gradients
        self._started = finite if self._started is None else self._started | finite

    def state_dict(self) -> dict[str, Any] | None:
        """Return the average for a checkpoint; nothing before the first group."""
        return None if self._started is None else {"started": self._started, "gradients": self._gradients}

    @classmethod
    def from_state(cls, state: Mapping[str, Any] | None, parameters: Gradients) -> "ValidationAverage":
        """Return the average that :meth:`state_dict` described; refuse one that is not of these parameters."""
        average = cls()
        if state is None:
            return average
        for position, gradient in state["gradients"].items():
            if position not in parameters or gradient.shape != parameters[position].shape:
                raise ValueError(
                    f"validation_average has a tensor of shape {tuple(gradient.shape)} for parameter {position}, which "
                    "does not fit these parameters; load the state that was saved with this model"
                )
            average._gradients[position] = gradient.to(parameters[position].device)
        average._started = state["started"].to(parameters[0].device)
        return average
