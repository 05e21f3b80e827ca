"""What the networks are made of: checks of their arguments, initial values, SAME padding and two normalisations.

The frameworks of the papers had layers that torch does not have, or has with other settings; these are written here.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

ImageShape = tuple[int, int, int]
"""Channels, height and width."""


def check_images(images: Tensor, expected: ImageShape) -> None:
    """Refuse a batch that does not have the shape ``[batch, *expected]``.

    Most networks here would accept images of another size and train on them without a word; the network would then not
    be the one its parameter count and its results belong to.
    """
    if images.ndim == 4 and tuple(images.shape[1:]) == expected:
        return
    channels, height, width = expected
    raise ValueError(
        f"images must have the shape [batch, {channels}, {height}, {width}] for this network, "
        f"got {list(images.shape)}; {_remedy(images, expected)}"
    )


def _remedy(images: Tensor, expected: ImageShape) -> str:
    shape = tuple(images.shape)
    channels, height, width = expected
    if shape == expected:
        return "a single image needs a batch around it, as in images[None]"
    if images.ndim == 4 and shape[1:] == (height, width, channels):
        return "channels come second here, as in images.movedim(-1, 1)"
    if images.ndim == 4 and shape[1] == channels:
        return f"crop or resize them to {height}x{width}"
    return "check how the images were loaded"


def check_num_classes(num_classes: int) -> None:
    """Refuse a number of classes for which no classifier can be built."""
    if not isinstance(num_classes, int) or isinstance(num_classes, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"num_classes must be a whole number, got {num_classes!r}")
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")


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


def same_padding(size: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Return how many rows TensorFlow's SAME padding adds before and after ``size`` rows.

    ``ceil(size / stride)`` windows then fit, whatever the kernel. An odd row goes to the bottom, an odd column to the
    right. torch pads both sides alike, which would move the grid that a strided layer samples by one pixel.

    >>> same_padding(28, kernel_size=3, stride=2)  # 14 windows need 29 rows
    (0, 1)
    >>> same_padding(27, kernel_size=3, stride=2)
    (1, 1)
    """
    num_windows = -(-size // stride)
    total = max((num_windows - 1) * stride + kernel_size - size, 0)
    return total // 2, total - total // 2


def _same_padding_2d(x: Tensor, kernel_size: int, stride: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return same_padding(x.shape[-2], kernel_size, stride), same_padding(x.shape[-1], kernel_size, stride)


class SameConv2d(nn.Conv2d):
    """A convolution with SAME padding, by zeros; parameters and their names are those of ``nn.Conv2d``."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1, bias: bool = True
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride=stride, bias=bias)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - the name torch gave it
        """Return ``[batch, out_channels, ceil(height / stride), ceil(width / stride)]``."""
        rows, columns = _same_padding_2d(input, self.kernel_size[0], self.stride[0])
        padding = (0, 0)
        if rows[0] == rows[1] and columns[0] == columns[1]:
            # The convolution pads without a copy.
            padding = (rows[0], columns[0])
        else:
            input = F.pad(input, (*columns, *rows))  # noqa: A001
        return F.conv2d(input, self.weight, self.bias, self.stride, padding)

    def extra_repr(self) -> str:
        """Show the padding too where a network is printed."""
        return f"{super().extra_repr()}, padding=SAME"


class SameMaxPool2d(nn.Module):
    """Max pooling with SAME padding, which never wins: where a window leaves the image, it sees fewer pixels."""

    def __init__(self, kernel_size: int, *, stride: int) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, channels, ceil(height / stride), ceil(width / stride)]``."""
        rows, columns = _same_padding_2d(x, self.kernel_size, self.stride)
        padding = (0, 0)
        if rows[0] == rows[1] and columns[0] == columns[1]:
            padding = (rows[0], columns[0])
        else:
            x = F.pad(x, (*columns, *rows), value=-float("inf"))
        return F.max_pool2d(x, self.kernel_size, self.stride, padding)

    def extra_repr(self) -> str:
        """Show the settings where a network is printed."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}"


class ShiftBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm as TensorFlow's slim library sets it up: ``(x - mean) / sqrt(var + 0.001) + bias``, without a scale.

    Everything else is ``nn.BatchNorm2d``, of which it is one wherever people look for BatchNorm. A forward pass moves
    the running statistics by 0.025 of the way: little, because every one of k small mini-batches moves them.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features, eps=1e-3, momentum=0.025)
        self.register_parameter("weight", None)

    def reset_parameters(self) -> None:
        """Start from no shift, mean 0 and variance 1."""
        self.reset_running_stats()
        nn.init.zeros_(self.bias)


class ResponseNorm(nn.Module):
    """Local response normalisation: divide every activation by the size of its neighbours in other channels.

        out_c = x_c * (1 + alpha / n * sum of x_j^2 over the n channels around c) ^ -0.75

    The same function as ``torch.nn.LocalResponseNorm``, which takes over 40 % of CifarNet's training time on a CPU.
    Here the sum is a 1x1 convolution with a band of ones, the power two square roots, and the gradient is written out:
    autograd would keep and revisit every factor. ``benchmarks/response_norm.py`` measures the difference.

    Args:
        num_channels: the channels of the input; fewer than ``window`` are welcome.
        window: how many channels are summed, the own one in the middle; channels beyond the edge count as zero.
        alpha: the strength, shared out over the window (``alpha / window`` per square).
    """

    band: Tensor

    def __init__(self, num_channels: int, window: int, *, alpha: float) -> None:
        super().__init__()
        if window < 1 or window % 2 == 0:
            raise ValueError(f"window must be odd, so that it has a middle, got {window}")
        self.window = window
        self.alpha = alpha
        channels = torch.arange(num_channels)
        near = (channels[:, None] - channels[None, :]).abs() <= window // 2
        # Ones, scaled when used: they survive every change of precision exactly, alpha / window would not.
        self.register_buffer("band", near.to(torch.get_default_dtype())[:, :, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalised; shape, precision and memory format stay."""
        band = self.band.to(x.dtype) * (self.alpha / self.window)
        base = x.new_ones(x.shape[-3])
        if torch.compiler.is_compiling():
            # The compiler fuses the plain formula and derives its gradient by itself.
            return x * _factors(_divisors(x, band, base))
        return _ResponseNorm.apply(x, band, base)[0]

    def extra_repr(self) -> str:
        """Show the settings where a network is printed."""
        return f"{self.band.shape[0]}, window={self.window}, alpha={self.alpha}"


def _divisors(x: Tensor, band: Tensor, base: Tensor) -> Tensor:
    return F.conv2d(x * x, band, base)


def _factors(divisors: Tensor) -> Tensor:
    # d^-0.75 = (d * d^0.5)^-0.5; roots are several times faster than a power.
    return (divisors * divisors.sqrt()).rsqrt_()


class _ResponseNorm(Function):
    """The gradient in closed form.

    With d the divisors, f = d^-0.75 and B the (symmetric) scaled band:  dx = f g - 1.5 x B(f g x / d).
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, band: Tensor, base: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        squares = x * x
        divisors = F.conv2d(squares, band, base)
        # `_factors` in the memory of the squares: fresh memory costs more here than the arithmetic.
        factors = squares.copy_(divisors).sqrt_().mul_(divisors).rsqrt_()
        return x * factors, divisors, factors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
        _, divisors, factors = output
        ctx.mark_non_differentiable(divisors, factors)
        ctx.set_materialize_grads(False)  # two tensors of zeros that nobody reads
        ctx.save_for_backward(*inputs, divisors, factors)

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor | None) -> tuple[Tensor | None, None, None]:
        gradient = gradients[0]
        if gradient is None:
            return None, None, None
        x, band, base, divisors, factors = ctx.saved_tensors  # pyright: ignore[reportAttributeAccessIssue]
        if torch.is_grad_enabled():
            # Somebody will differentiate this gradient, and what was saved does not know that it depends on x.
            divisors = _divisors(x, band, base)
            scaled = gradient * _factors(divisors)
            return torch.addcmul(scaled, x, F.conv2d(scaled * x / divisors, band), value=-1.5), None, None
        # The same, in place.
        scaled = gradient * factors
        spread = F.conv2d((scaled * x).div_(divisors), band)
        return scaled.addcmul_(x, spread, value=-1.5), None, None
