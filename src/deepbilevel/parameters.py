"""The parameters that are trained: which they are, and how their gradients leave ``.grad`` and come back.

This module knows ``.grad``; it does not know what becomes of gradients in between.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Parameters = nn.Module | Iterable[Tensor] | Iterable[Mapping[str, Any]]
"""A module, its parameters, or an optimizer's ``param_groups``."""

Gradients = dict[int, Tensor]
"""Position of a parameter -> its gradient. A parameter the loss did not touch has no entry."""


def unique_parameters(model_or_parameters: Parameters) -> list[Tensor]:
    """Return the parameters of a module, of a list or of an optimizer's groups, each once; refuse what is none."""
    if isinstance(model_or_parameters, nn.Module):
        return _checked(list(model_or_parameters.parameters()))
    if isinstance(model_or_parameters, Tensor):
        raise TypeError("model_or_parameters must be a module or several parameters, got one tensor; put it in a list")
    if not isinstance(model_or_parameters, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        remedy = "its .param_groups" if hasattr(model_or_parameters, "param_groups") else "the model"
        raise TypeError(
            f"model_or_parameters must be a module or several parameters, got {type(model_or_parameters).__name__}; "
            f"pass {remedy}"
        )
    found: list[Tensor] = []
    for entry in model_or_parameters:
        found.extend(entry["params"] if isinstance(entry, Mapping) else [entry])
    return _checked(list({id(parameter): parameter for parameter in found}.values()))


def _checked(parameters: list[Tensor]) -> list[Tensor]:
    if not parameters:
        raise ValueError("model_or_parameters holds no parameter; was a generator used up before?")
    for parameter in parameters:
        if not isinstance(parameter, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"model_or_parameters must hold tensors, got {type(parameter).__name__}")
        if not parameter.is_leaf:
            raise ValueError("model_or_parameters holds a tensor that is computed from others; pass leaf parameters")
        if not parameter.is_floating_point():
            raise ValueError(
                f"model_or_parameters holds a parameter of {parameter.dtype}; only real floating point is supported "
                "(train complex parameters through torch.view_as_real)"
            )
    return parameters


def owning_modules(model: nn.Module) -> list[int]:
    """Return for each of ``model.parameters()`` the number of the module that owns it; the first one of a tied one."""
    owners: dict[int, int] = {}
    num_owners = 0
    for module in model.modules():
        own = [p for p in module.parameters(recurse=False) if id(p) not in owners]
        owners.update((id(parameter), num_owners) for parameter in own)
        num_owners += bool(own)
    return [owners[id(parameter)] for parameter in model.parameters()]


def device_of(parameters: Sequence[Tensor]) -> torch.device:
    """Return where all of them are."""
    devices = {parameter.device for parameter in parameters}
    if len(devices) > 1:
        names = ", ".join(sorted(map(str, devices)))
        raise ValueError(f"the parameters are spread over several devices ({names}); move the model to one")
    return devices.pop()


def take_gradients(parameters: Sequence[Tensor]) -> Gradients:
    """Move ``.grad`` out of the parameters, without a copy; afterwards they have none."""
    taken: Gradients = {}
    for position, parameter in enumerate(parameters):
        if parameter.grad is not None:
            taken[position] = parameter.grad
            parameter.grad = None
    return taken


def put_gradients(parameters: Sequence[Tensor], gradients: Gradients) -> None:
    """Make ``gradients`` the ``.grad`` of the parameters; a parameter without an entry gets none."""
    for position, parameter in enumerate(parameters):
        gradient = gradients.get(position)
        parameter.grad = None if gradient is None else gradient.to(parameter.dtype)


@contextmanager
def emptied_gradients(parameters: Sequence[Tensor]) -> Generator[None]:
    """Let parameters have no gradient, for others to come; after an error they have what they had."""
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    except BaseException:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
        raise


class Autograd:
    """Runs backward passes, and moves gradients out of ``.grad`` and back in.

    Args:
        parameters: whose gradients are wanted.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters

    def gradients_of(self, loss: Tensor) -> Gradients:
        """Run backward; return the gradients, which ``.grad`` no longer holds."""
        loss.backward()
        return take_gradients(self._parameters)

    def put(self, gradients: Gradients, finite: Tensor) -> None:
        """Make gradients the ``.grad`` of the parameters.

        Args:
            gradients: what a rule made of a group.
            finite: false for mini-batches that are not in them because they are not finite; for a loss scale.
        """
        put_gradients(self._parameters, gradients)
