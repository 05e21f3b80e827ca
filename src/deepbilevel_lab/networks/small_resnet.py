"""A small residual network for photographs of any size: what a folder of one's own images is trained with.

GroupNorm stands where BatchNorm usually does: the mini-batches that are compared may hold four images, whose statistics
mean little, and an average of weights needs no statistics of its own.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.networks.layers import ImageShape, check_images, check_num_classes

SIDES = (32, 1024)
"""The smallest and the largest image."""
_WIDTHS = (32, 64, 128, 256)
_CHANNELS_PER_GROUP = 8


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(channels // _CHANNELS_PER_GROUP, channels)


class ResidualBlock(nn.Module):
    """3x3 convolution - GroupNorm - ReLU - 3x3 convolution - GroupNorm, added to a shortcut."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = _norm(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = _norm(out_channels)
        same_shape = stride == 1 and in_channels == out_channels
        # Averaged before it is thinned out: a strided 1x1 convolution would look at a quarter of the pixels.
        self.shortcut = (
            nn.Identity()
            if same_shape
            else nn.Sequential(
                nn.AvgPool2d(stride, ceil_mode=True), nn.Conv2d(in_channels, out_channels, 1, bias=False)
            )
        )
        nn.init.constant_(self.norm2.weight, 0.2)  # the block begins near its shortcut, and every layer learns

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, out_channels, height / stride, width / stride]``, rounded up."""
        residual = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(residual + self.shortcut(x))


class SmallResNet(nn.Module):
    """A stem that quarters the side, four residual blocks, the mean over all places, dropout and a linear layer."""

    def __init__(self, num_classes: int, side: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.input_shape: ImageShape = (3, side, side)
        self.stem = nn.Sequential(
            nn.Conv2d(3, _WIDTHS[0], 3, 2, padding=1, bias=False),
            _norm(_WIDTHS[0]),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, padding=1),
        )
        pairs = zip((_WIDTHS[0], *_WIDTHS[:-1]), _WIDTHS, strict=True)
        self.blocks = nn.Sequential(*(ResidualBlock(a, b, 1 if a == b else 2) for a, b in pairs))
        self.dropout = nn.Dropout(0.0)
        self.fc = nn.Linear(_WIDTHS[-1], num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        return self.fc(self.dropout(self.blocks(self.stem(images)).mean(dim=(2, 3))))


def small_resnet(num_classes: int = 10, side: int = 64) -> SmallResNet:
    """Build the network with fresh weights for images of that side; 1.2 million parameters, whatever the side."""
    return SmallResNet(num_classes, side)
