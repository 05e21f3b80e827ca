"""PreAct ResNet-18 for 32x32 images, as the mixup paper's code has it; and a small relative for few cores.

Two details are that code's own: the shortcut carries the activated tensor, also where it is the identity, and no
BatchNorm stands between the last block and the pooling. The initialisation is torch's.

That code has no dropout, and the paper, which compares with dropout in this network, does not say where it put it. Ours
stands where most networks have it, before the last linear layer, and drops nothing unless a spec sets its rate.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.networks.layers import ImageShape, check_images, check_num_classes


class PreActBlock(nn.Module):
    """BatchNorm - ReLU - 3x3 convolution, twice, around a shortcut that starts after the first ReLU."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if same_shape else nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, out_channels, height / stride, width / stride]``."""
        activated = F.relu(self.bn1(x))
        residual = self.conv2(F.relu(self.bn2(self.conv1(activated))))
        return residual + self.shortcut(activated)


class PreActResNet(nn.Module):
    """A stem and stages of blocks; each stage but the first halves the map and doubles the channels.

    Args:
        num_classes: scores per image.
        width: channels of the stem and of the first stage.
        stages: how many there are.
        blocks: of each stage.
    """

    input_shape: ImageShape = (3, 32, 32)

    def __init__(self, num_classes: int, *, width: int = 64, stages: int = 4, blocks: int = 2) -> None:
        super().__init__()
        check_num_classes(num_classes)
        stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.stem = nn.Sequential(stem, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.stages = nn.Sequential()
        channels = width
        for number in range(stages):
            wide, stride = width * 2**number, 1 if number == 0 else 2
            others = [PreActBlock(wide, wide, 1) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(PreActBlock(channels, wide, stride), *others))
            channels = wide
        self.dropout = nn.Dropout(0.0)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        return self.fc(self.dropout(self.stages(self.stem(images)).mean(dim=(2, 3))))


def preact_resnet18(num_classes: int = 10) -> PreActResNet:
    """Build PreAct ResNet-18, for 32x32 colour images.

    >>> sum(parameter.numel() for parameter in preact_resnet18().parameters())
    11171274
    """
    return PreActResNet(num_classes)


def preact_resnet8(num_classes: int = 10) -> PreActResNet:
    """Build a PreAct ResNet with one block in each of three stages, from 16 to 64 channels, for 32x32 colour images.

    >>> sum(parameter.numel() for parameter in preact_resnet8().parameters())
    77754
    """
    return PreActResNet(num_classes, width=16, stages=3, blocks=1)
