"""The loss scale of a float16 loop, around a group: gradients are compared unscaled and left scaled in ``.grad``.

This module knows a scaler and gradients; no rule, and no optimizer.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.gradients import Gradients, scale_gradients
from deepbilevel.parameters import Autograd


def is_scaling(scaler: GradScaler | None) -> bool:
    """Return whether there is a scaler, and it is switched on; refuse what is none."""
    if scaler is not None and not isinstance(scaler, GradScaler):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"scaler must be a torch.amp.GradScaler, got {scaler!r}; pass the one your loop steps with")
    return scaler is not None and scaler.is_enabled()


def autograd_with(scaler: GradScaler, parameters: Sequence[Tensor]) -> Autograd:
    """Return what runs the backward passes of a loop with this scaler."""
    return ScaledAutograd(parameters, scaler) if is_scaling(scaler) else Autograd(parameters)


class ScaledAutograd(Autograd):
    """Scales losses, and gradients back and forth.

    Args:
        parameters: whose gradients are wanted.
        scaler: the one the loop steps with, switched on.
    """

    def __init__(self, parameters: Sequence[Tensor], scaler: GradScaler) -> None:
        super().__init__(parameters)
        self._scaler = scaler
        self._overflowed: Tensor | None = None

    def gradients_of(self, loss: Tensor) -> Gradients:
        """Run backward from the scaled loss; return the gradients without the scale."""
        self._lower_after_overflow()
        gradients = super().gradients_of(self._scaler.scale(loss))
        scale_gradients(gradients, self._scale(loss.device).reciprocal())
        return gradients

    def put(self, gradients: Gradients, finite: Tensor) -> None:
        """Bring the scale into a group's gradients; remember whether one overflowed that is not in them."""
        self._overflowed = ~finite.all()
        scale_gradients(gradients, self._scale(self._overflowed.device))
        super().put(gradients, finite)

    def _lower_after_overflow(self) -> None:
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
