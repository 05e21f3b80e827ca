"""The loss scale of a float16 loop, around a group: gradients are compared unscaled and left scaled in ``.grad``.

It knows a scaler and gradients; no rule, and no optimizer.
"""

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.gradients import Gradients, scale_gradients


class LossScaling:
    """Scales losses, and gradients back and forth; does nothing without a scaler, or if it is switched off.

    Args:
        scaler: the one the loop steps with.
    """

    def __init__(self, scaler: GradScaler | None) -> None:
        if scaler is not None and not isinstance(scaler, GradScaler):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"scaler must be a torch.amp.GradScaler, got {scaler!r}; pass the one your loop steps with")
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._overflowed: Tensor | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is anything to scale."""
        return self._scaler is not None

    def scaled(self, loss: Tensor) -> Tensor:
        """Return the loss to run backward from."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def unscale(self, gradients: Gradients, device: torch.device) -> None:
        """Take the scale out of a mini-batch's gradients, in place."""
        if self._scaler is not None:
            scale_gradients(gradients, self._scale(device).reciprocal())

    def scale_result(self, gradients: Gradients, finite: Tensor) -> None:
        """Bring the scale into a group's gradient, in place, and note whether a mini-batch of it overflowed."""
        if self._scaler is not None:
            scale_gradients(gradients, self._scale(finite.device))
            self._overflowed = ~finite.all()

    def lower_after_overflow(self) -> None:
        """Lower the loss scale if a mini-batch of the last group overflowed.

        The scaler looks for overflow in ``.grad``, where a skipped mini-batch leaves no trace; unless it is told, it
        would keep a scale that is too high for ever. It is told when the next group begins: until then other gradients
        may still be scaled by the old one.
        """
        if self._scaler is not None and self._overflowed is not None:
            scale = self._scale(self._overflowed.device)
            self._scaler.update(torch.where(self._overflowed, scale * self._scaler.get_backoff_factor(), scale))
            self._overflowed = None

    def _scale(self, device: torch.device) -> Tensor:
        # Scaling a one is the public way to read the factor without waiting for the device.
        return self.scaled(torch.ones((), device=device))
