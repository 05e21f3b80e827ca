"""What one pass over several mini-batches refuses, with the reason and the remedy."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from deepbilevel.checks import check_alone
from deepbilevel.loss_scaling import is_scaling
from deepbilevel.step import GroupStep


def check_one_process(step: GroupStep[Any]) -> None:
    """Refuse a loss scaler and other processes."""
    others = "a loss scaler" if is_scaling(step.scaler) else "other processes" if step.is_shared else None
    if others is not None:
        raise NotImplementedError(f"step_at_once() does not work with {others}; use step_over() or backward()")
    if not step.alone_on_purpose:
        check_alone()


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
