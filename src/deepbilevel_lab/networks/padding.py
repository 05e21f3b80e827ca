"""TensorFlow's SAME padding: the output has ``ceil(size / stride)`` rows, whatever the kernel.

Where the padding is odd, the extra row and column go to the bottom and to the right. torch pads both sides alike,
which would move the grid that a strided layer samples by one pixel.
"""

from torch import Tensor, nn
from torch.nn import functional as F


def same_padding(size: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Return how many rows go before and after ``size`` rows, so that ``ceil(size / stride)`` windows fit.

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
