"""PreAct ResNet-18 for 32x32 images, as the mixup paper's code has it.

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


class PreActResNet18(nn.Module):
    """A stem and four stages of two blocks; each stage but the first halves the map and doubles the channels."""

    input_shape: ImageShape = (3, 32, 32)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        self.stages = nn.Sequential()
        channels = 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            self.stages.append(nn.Sequential(PreActBlock(channels, width, stride), PreActBlock(width, width, 1)))
            channels = width
        self.dropout = nn.Dropout(0.0)
        self.fc = nn.Linear(channels, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        return self.fc(self.dropout(self.stages(self.stem(images)).mean(dim=(2, 3))))


def preact_resnet18(num_classes: int = 10) -> PreActResNet18:
    """Build PreAct ResNet-18, for 32x32 colour images.

    >>> sum(parameter.numel() for parameter in preact_resnet18().parameters())
    11171274
    """
    return PreActResNet18(num_classes)
