"""Local response normalisation: every activation is divided by the size of its neighbours in other channels.

    out_c = x_c * (k + alpha / n * sum of x_j^2 over the n channels around c) ^ -0.75

The same function as ``torch.nn.LocalResponseNorm``, which takes over 40 % of CifarNet's training time on a CPU. Here
the sum is a 1x1 convolution with a band of ones, the power two square roots, and the gradient is written out:
autograd would keep and revisit every factor. ``benchmarks/response_norm.py`` measures the difference.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F


class ResponseNorm(nn.Module):
    """Divide every activation by a power of the squares in the channels around it; no parameters.

    Args:
        num_channels: the channels of the input; fewer than ``window`` are welcome.
        window: how many channels are summed, the own one in the middle; channels beyond the edge count as zero.
        alpha: the strength, shared out over the window (``alpha / window`` per square).
        k: what the sum is added to; positive.
    """

    band: Tensor

    def __init__(self, num_channels: int, window: int, *, alpha: float, k: float = 1.0) -> None:
        super().__init__()
        if window < 1 or window % 2 == 0:
            raise ValueError(f"window must be odd, so that it has a middle, got {window}")
        if k <= 0:
            raise ValueError(f"k must be positive, or all-zero activations would be divided by zero, got {k}")
        self.window = window
        self.alpha = alpha
        self.k = k
        channels = torch.arange(num_channels)
        near = (channels[:, None] - channels[None, :]).abs() <= window // 2
        # Ones, scaled when used: they survive every change of precision exactly, alpha / window would not.
        self.register_buffer("band", near.to(torch.get_default_dtype())[:, :, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalised; shape, precision and memory format stay."""
        band = self.band.to(x.dtype) * (self.alpha / self.window)
        base = x.new_full((x.shape[-3],), self.k)
        if torch.compiler.is_compiling():
            # The compiler fuses the plain formula and derives its gradient by itself.
            return x * _factors(_divisors(x, band, base))
        return _ResponseNorm.apply(x, band, base)[0]

    def extra_repr(self) -> str:
        """Show the settings where a network is printed."""
        return f"{self.band.shape[0]}, window={self.window}, alpha={self.alpha}, k={self.k}"


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
