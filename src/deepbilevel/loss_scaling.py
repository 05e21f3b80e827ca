"""The loss scale of a float16 loop, around a group: gradients are compared unscaled and left scaled in ``.grad``.

This module knows a scaler and gradients; no rule, and no optimizer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.gradients import Gradients, scale_gradients, take_gradients


class LossScaling:
    """Scales losses, and gradients back and forth.

    Args:
        scaler: the one the loop steps with, switched on.
    """

    def __init__(self, scaler: GradScaler) -> None:
        self._scaler = scaler
        self._overflowed: Tensor | None = None

    @classmethod
    def of(cls, scaler: GradScaler | None) -> "LossScaling | None":
        """Return what a scaler asks for: nothing if there is none, or if it is switched off."""
        if scaler is not None and not isinstance(scaler, GradScaler):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"scaler must be a torch.amp.GradScaler, got {scaler!r}; pass the one your loop steps with")
        return cls(scaler) if scaler is not None and scaler.is_enabled() else None

    def gradients_of(self, loss: Tensor, parameters: Sequence[Tensor]) -> Gradients:
        """Run backward from the scaled loss; return the gradients without the scale."""
        self._scaler.scale(loss).backward()
        gradients = take_gradients(parameters)
        scale_gradients(gradients, self._scale(loss.device).reciprocal())
        return gradients

    def scale_result(self, gradients: Gradients, overflowed: Tensor) -> None:
        """Bring the scale into a group's gradient, in place.

        Args:
            gradients: what the rule made of the group.
            overflowed: whether a mini-batch was left out because its gradient was not finite.
        """
        scale_gradients(gradients, self._scale(overflowed.device))
        self._overflowed = overflowed

    def lower_after_overflow(self) -> None:
        """Lower the loss scale if a mini-batch of the last group overflowed.

        The scaler looks for overflow in ``.grad``, where a skipped mini-batch leaves no trace; unless it is told, it
        would keep a scale that is too high for ever. It is told when the next group begins: until then other gradients
        may still be scaled by the old one.
        """
        if self._overflowed is not None:
            scale = self._scale(self._overflowed.device)
            self._scaler.update(torch.where(self._overflowed, scale * self._scaler.get_backoff_factor(), scale))
            self._overflowed = None

    def _scale(self, device: torch.device) -> Tensor:
        # Scaling a one is the public way to read the factor without waiting for the device.
        return self._scaler.scale(torch.ones((), device=device))
