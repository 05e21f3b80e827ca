"""Which parameters a step works on, and which module each of them belongs to. Knows no gradient and no rule."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

Parameters = nn.Module | Iterable[Tensor] | Iterable[Mapping[str, Any]]


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
