"""What a network knows of an image before its last layer, without changing the network."""

from collections.abc import Callable

from torch import Tensor, nn

from deepbilevel_lab.losses.objective import at_least_float32


def last_linear(network: nn.Module, num_classes: int) -> nn.Linear:
    """Return the layer that gives the scores.

    >>> last_linear(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), num_classes=2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    layers = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != num_classes:
        raise ValueError(
            f"the network's last linear layer is {layers[-1] if layers else 'not there'}, expected one that gives "
            f"{num_classes} scores; a loss that looks at its input cannot be used"
        )
    return layers[-1]


def with_features(
    scores_of: Callable[[nn.Module, Tensor], Tensor], network: nn.Module, images: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Return scores, and the input of the layer that gave them in float32 at the least."""
    caught: list[Tensor] = []

    def catch(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        caught.append(inputs[0])

    hook = last_linear(network, num_classes).register_forward_pre_hook(catch)
    try:
        scores = scores_of(network, images)
    finally:
        hook.remove()
    return scores, at_least_float32(caught[-1])
