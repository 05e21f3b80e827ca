"""The small Inception for CIFAR, of Zhang et al. (2017), in their version and in that of the paper's authors.

Every convolution is convolution (no bias) - BatchNorm (no scale) - ReLU.
"""

import torch
from torch import Tensor, nn

from deepbilevel_lab.networks.layers import (
    ImageShape,
    SameConv2d,
    SameMaxPool2d,
    ShiftBatchNorm2d,
    check_images,
    check_num_classes,
    fill_he_normal,
)


def _conv(in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1) -> nn.Sequential:
    convolution = SameConv2d(in_channels, out_channels, kernel_size, stride=stride, bias=False)
    return nn.Sequential(convolution, ShiftBatchNorm2d(out_channels), nn.ReLU(inplace=True))


class InceptionModule(nn.Module):
    """A 1x1 and a 3x3 convolution side by side."""

    def __init__(self, in_channels: int, num_1x1: int, num_3x3: int) -> None:
        super().__init__()
        self.out_channels = num_1x1 + num_3x3
        self.conv1x1 = _conv(in_channels, num_1x1, 1)
        self.conv3x3 = _conv(in_channels, num_3x3, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, num_1x1 + num_3x3, height, width]``."""
        return torch.cat([self.conv1x1(x), self.conv3x3(x)], dim=1)


class DownModule(nn.Module):
    """A 3x3 convolution and a 3x3 max pooling side by side, both of stride 2.

    SAME padding puts its one row and column below and to the right of maps of even size.
    """

    def __init__(self, in_channels: int, num_3x3: int) -> None:
        super().__init__()
        self.out_channels = num_3x3 + in_channels
        self.conv3x3 = _conv(in_channels, num_3x3, 3, stride=2)
        self.pool = SameMaxPool2d(3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, num_3x3 + in_channels, ceil(height / 2), ceil(width / 2)]``."""
        return torch.cat([self.conv3x3(x), self.pool(x)], dim=1)


_STEM = 96
# (1x1, 3x3) channels of an Inception module, or the channels a down module adds.
_BODY: tuple[tuple[int, int] | int, ...] = (
    *((32, 32), (32, 48), 80),
    *((112, 48), (96, 64), (80, 80), (48, 96), 96),
    *((176, 160), (176, 160)),
)


class SmallInception(nn.Module):
    """A 3x3 convolution, eight Inception modules on three scales, average pooling and one fully connected layer.

    Args:
        num_classes: how many scores come out.
        input_size: height and width of the images.
        padded_stem: whether the first convolution keeps the size of the image (SAME) or takes a pixel off every side.
        dropout: the share of pooled features that is dropped in training.
        narrowing: divides the channels of every convolution.
    """

    def __init__(
        self, num_classes: int, *, input_size: int, padded_stem: bool, dropout: float, narrowing: int = 1
    ) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.input_shape: ImageShape = (3, input_size, input_size)
        channels = _STEM // narrowing
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, padding=1 if padded_stem else 0, bias=False),
            ShiftBatchNorm2d(channels),
            nn.ReLU(inplace=True),
        )
        self.body = nn.Sequential()
        for widths in _BODY:
            if isinstance(widths, int):
                module = DownModule(channels, widths // narrowing)
            else:
                module = InceptionModule(channels, *(width // narrowing for width in widths))
            self.body.append(module)
            channels = module.out_channels
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(channels, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                fill_he_normal(module)

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        x = self.body(self.stem(images))
        return self.fc(self.dropout(x.mean(dim=(2, 3))))


def inception(num_classes: int = 10) -> SmallInception:
    """Build the paper's authors' version, for 29x29 colour images: unpadded stem, dropout before the classifier.

    >>> sum(parameter.numel() for parameter in inception().parameters())
    1649402
    """
    return SmallInception(num_classes, input_size=29, padded_stem=False, dropout=0.5)


def inception_half(num_classes: int = 10) -> SmallInception:
    """Build the same with half the channels, a third of the time: for machines without an accelerator.

    >>> sum(parameter.numel() for parameter in inception_half().parameters())
    414274
    """
    return SmallInception(num_classes, input_size=29, padded_stem=False, dropout=0.5, narrowing=2)


def inception_zhang(num_classes: int = 10) -> SmallInception:
    """Build the version of Zhang et al., for 28x28 colour images: padded stem, no dropout.

    >>> sum(parameter.numel() for parameter in inception_zhang(num_classes=100).parameters())
    1679732
    """
    return SmallInception(num_classes, input_size=28, padded_stem=True, dropout=0.0)
