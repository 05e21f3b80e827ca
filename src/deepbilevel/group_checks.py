"""What a group refuses, with the reason and the remedy: sizes, losses and gradients that cannot be compared."""

from collections.abc import Sequence
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


def check_no_hooks(parameters: Sequence[Tensor]) -> None:
    """Refuse hooks on parameters: in one pass no gradient of a mini-batch comes by them."""
    for parameter in parameters:
        hooks = parameter._backward_hooks, parameter._post_accumulate_grad_hooks  # pyright: ignore[reportPrivateUsage]
        if any(hooks):
            raise NotImplementedError(
                f"a parameter of shape {tuple(parameter.shape)} has a hook on its gradient, which one pass would not "
                "call for each mini-batch; remove it or use step_over()"
            )


def check_losses(losses: Tensor, num_samples: int, num_batches: int) -> None:
    """Refuse what is not one loss for each sample or for each mini-batch."""
    if not isinstance(losses, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"losses_of must return a tensor, got {type(losses).__name__}")
    if losses.shape not in ((num_samples,), (num_batches,)):
        raise ValueError(
            f"losses_of must return one loss per sample, shape ({num_samples},), or one per mini-batch, shape "
            f"({num_batches},), got {tuple(losses.shape)}; build the criterion with reduction='none' (a pass may hold "
            "fewer mini-batches than the group)"
        )
    if not losses.requires_grad:
        raise ValueError(
            "losses do not depend on any trainable parameter; was the forward pass run under no_grad(), were they "
            "detached, or are all parameters frozen?"
        )


def check_all_taken_apart(parameters: Sequence[Tensor]) -> None:
    """Refuse gradients that came as a sum over mini-batches."""
    for parameter in parameters:
        if parameter.grad is not None:
            raise NotImplementedError(
                f"a parameter of shape {tuple(parameter.shape)} is used in a way that one pass cannot take apart: "
                "not, or not only, as it is by a linear layer, convolution, embedding or normalisation of torch, or in "
                "activations that are computed again; use step_over() for this model"
            )
