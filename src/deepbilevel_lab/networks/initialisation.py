"""Initial values as the papers' frameworks drew them, from torch's global generator alone."""

from torch import nn


def fill_truncated_normal(layer: nn.Conv2d | nn.Linear, *, std: float, bias: float) -> None:
    """Draw the weights as TensorFlow's truncated normal does: nothing lies beyond two ``std``.

    The standard deviation of what is left is ``0.88 * std``; TensorFlow does not make up for it, so neither do we.
    """
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    _fill_bias(layer, bias)


def fill_normal(layer: nn.Conv2d | nn.Linear, *, std: float, bias: float) -> None:
    """Draw the weights from a normal distribution around zero."""
    nn.init.normal_(layer.weight, std=std)
    _fill_bias(layer, bias)


def fill_he_normal(layer: nn.Conv2d | nn.Linear) -> None:
    """Draw the weights from a normal distribution of variance ``2 / fan_in``; biases are zero."""
    nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
    _fill_bias(layer, 0.0)


def _fill_bias(layer: nn.Conv2d | nn.Linear, bias: float) -> None:
    if layer.bias is not None:  # pyright: ignore[reportUnnecessaryComparison]
        nn.init.constant_(layer.bias, bias)
