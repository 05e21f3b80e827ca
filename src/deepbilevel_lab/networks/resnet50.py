"""ResNet-50 for 224x224 images, with torchvision's names, so that its weight files fit.

Strides are in the 3x3 convolutions, as in those files; He et al. (2016) had them in the first 1x1.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.networks.layers import ImageShape, check_images, check_num_classes

_EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolution, each with BatchNorm, added to a shortcut."""

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * _EXPANSION
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, 4 * width, height / stride, width / stride]``."""
        residual = F.relu(self.bn1(self.conv1(x)))
        residual = F.relu(self.bn2(self.conv2(residual)))
        residual = self.bn3(self.conv3(residual))
        return F.relu(residual + (x if self.downsample is None else self.downsample(x)))


def _stage(in_channels: int, width: int, num_blocks: int, stride: int) -> nn.Sequential:
    later = (Bottleneck(width * _EXPANSION, width, 1) for _ in range(num_blocks - 1))
    return nn.Sequential(Bottleneck(in_channels, width, stride), *later)


class ResNet50(nn.Module):
    """A strided stem, four stages of 3, 4, 6 and 3 bottlenecks, average pooling and one fully connected layer."""

    input_shape: ImageShape = (3, 224, 224)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = _stage(64, 64, 3, stride=1)
        self.layer2 = _stage(256, 128, 4, stride=2)
        self.layer3 = _stage(512, 256, 6, stride=2)
        self.layer4 = _stage(1024, 512, 3, stride=2)
        self.fc = nn.Linear(2048, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(dim=(2, 3)))


def resnet50(num_classes: int = 1000) -> ResNet50:
    """Build ResNet-50 with fresh weights, for 224x224 colour images; 25,557,032 parameters with 1000 classes."""
    return ResNet50(num_classes)
