"""Starting from weights that somebody trained: which layer gives the scores, what is frozen, what learns how fast."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]

from deepbilevel_lab.networks.weights_file import fill_network

_CONTAINERS = (nn.Sequential, nn.ModuleList)


def find_head(model: nn.Module, num_classes: int) -> str:
    """Return the name of the layer that gives the scores.

    >>> find_head(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), num_classes=2)
    '2'
    """
    classifier: Any = model.get_classifier() if hasattr(model, "get_classifier") else None  # pyright: ignore
    heads = [
        name
        for name, module in model.named_modules()
        if module is classifier
        or (classifier is None and (weight := _own_weight(module)) is not None and weight.shape[0] == num_classes)
    ]
    if not heads:
        raise ValueError(
            f"no layer of {type(model).__name__} gives {num_classes} scores, so which is its last is unknown"
        )
    return heads[-1]


def fill_from(model: nn.Module, weights: Mapping[str, Tensor], source: str, num_classes: int) -> str | None:
    """Copy weights into a network; those of other classes are left out. Returns what to say about that, if so."""
    own, head = model.state_dict(), find_head(model, num_classes)
    of_head = [name for name in own if name.startswith(f"{head}.")]
    if not any(name in weights and weights[name].shape != own[name].shape for name in of_head):
        fill_network(model, weights, source)
        return None
    given = next(weights[name].shape[0] for name in of_head if name in weights)
    fill_network(model, {**weights, **{name: own[name] for name in of_head}}, source)
    return f"{source} has {given:,} classes, this run {num_classes:,}: its last layer, {head}, starts from scratch"


def freeze_backbone(model: nn.Module, num_classes: int) -> None:
    """Let only the last layer learn; statistics of BatchNorm stay, and dropout before it drops nothing."""
    head = find_head(model, num_classes)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(f"{head}."))
    for name, module in model.named_modules():
        if isinstance(module, (_BatchNorm, _DropoutNd)) and not name.startswith(head):
            module.register_forward_pre_hook(_in_evaluation)  # outlasts every model.train()


def number_layers(model: nn.Module) -> dict[Tensor, int]:
    """Return how many layers lie between a parameter and the scores: 0 for the last layer.

    A layer is what a container (Sequential, ModuleList) holds, or a part that does not mainly consist of one.
    """
    blocks = [block for block in _blocks(model) if any(True for _ in block.parameters())]
    numbers: dict[Tensor, int] = {}
    for number, block in enumerate(reversed(blocks)):
        numbers.update({parameter: number for parameter in block.parameters() if parameter not in numbers})
    deepest = len(blocks)
    return {parameter: numbers.get(parameter, deepest) for parameter in model.parameters()}


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, _CONTAINERS) or any(_holds_most(child, inner) for inner in child.modules()):
            yield from _blocks(child)
        else:
            yield child


def _holds_most(module: nn.Module, inner: nn.Module) -> bool:
    return isinstance(inner, _CONTAINERS) and 2 * _size(inner) > _size(module)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _own_weight(module: nn.Module) -> Tensor | None:
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.ndim >= 2 else None


def _in_evaluation(module: nn.Module, _: Any) -> None:
    module.eval()
