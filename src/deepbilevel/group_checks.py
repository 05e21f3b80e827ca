"""What a group refuses, with the reason and the remedy: sizes, losses and gradients that cannot be compared."""

from numbers import Integral

import torch
from torch import Tensor

from deepbilevel.gradients import AnyGradients


def check_num_batches(num_batches: int) -> None:
    """Refuse a group in which nothing could be compared."""
    if isinstance(num_batches, bool) or not isinstance(num_batches, Integral):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"num_batches must be a whole number, got {num_batches!r}")
    if num_batches < 2:
        raise ValueError(
            f"num_batches must be at least 2 (one mini-batch validates, the others train), got {num_batches}"
        )


def check_loss(loss: Tensor, device: torch.device) -> None:
    """Refuse what is not a loss of parameters on the device."""
    if not isinstance(loss, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"loss must be a tensor, got {type(loss).__name__}; pass what the criterion returned")
    if loss.numel() != 1:
        raise ValueError(
            f"loss must be a single number, got shape {tuple(loss.shape)}; reduce it first, as in loss.mean()"
        )
    if not loss.requires_grad:
        raise ValueError(
            "loss does not depend on any trainable parameter; was the forward pass run under no_grad(), "
            "was the loss detached, or are all parameters frozen?"
        )
    if loss.device != device:
        raise ValueError(
            f"loss is on {loss.device} but the parameters are on {device}; "
            f"move the model with .to({str(loss.device)!r}) or the inputs with .to({str(device)!r})"
        )


def check_gradients(gradients: AnyGradients) -> None:
    """Refuse a backward pass that left no gradient, or one that cannot be compared."""
    if not gradients:
        raise ValueError(
            "loss does not depend on any of the parameters given to this object; was it built for another model?"
        )
    if any(isinstance(each, Tensor) and each.layout is not torch.strided for each in gradients.values()):
        raise ValueError("a parameter has a sparse gradient; build its layer with sparse=False")
