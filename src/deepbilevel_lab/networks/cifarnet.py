"""CifarNet: the small AlexNet-like network for CIFAR of TensorFlow's tutorial, as the paper's tables use it."""

from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel_lab.networks.layers import (
    ImageShape,
    ResponseNorm,
    SameConv2d,
    SameMaxPool2d,
    check_images,
    check_num_classes,
    fill_truncated_normal,
)


class CifarNet(nn.Module):
    """conv - ReLU - pool - norm - conv - ReLU - norm - pool - FC - ReLU - dropout - FC - ReLU - FC.

    SAME padding adds two pixels on every side for the 5x5 kernels, and none for the pools: 28 -> 14 -> 7.
    """

    input_shape: ImageShape = (3, 28, 28)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.conv1 = SameConv2d(3, 64, 5)
        self.norm1 = ResponseNorm(64, 9, alpha=0.001)
        self.conv2 = SameConv2d(64, 64, 5)
        self.norm2 = ResponseNorm(64, 9, alpha=0.001)
        self.pool = SameMaxPool2d(2, stride=2)
        self.fc1 = nn.Linear(64 * 7 * 7, 384)
        self.dropout = nn.Dropout(0.5)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, num_classes)

        # A positive bias keeps the ReLUs of the middle layers alive at the start.
        fill_truncated_normal(self.conv1, std=0.05, bias=0.0)
        fill_truncated_normal(self.conv2, std=0.05, bias=0.1)
        fill_truncated_normal(self.fc1, std=0.04, bias=0.1)
        fill_truncated_normal(self.fc2, std=0.04, bias=0.1)
        fill_truncated_normal(self.fc3, std=1 / 192, bias=0.0)

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        if images.device.type == "cpu":
            # A CPU runs these convolutions up to 1.6 times as fast with the channels last. Two transpositions, because
            # vmap has no `contiguous(memory_format=...)`.
            images = images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        x = self.norm1(self.pool(F.relu(self.conv1(images))))
        x = self.pool(self.norm2(F.relu(self.conv2(x))))
        x = self.dropout(F.relu(self.fc1(x.flatten(1))))
        return self.fc3(F.relu(self.fc2(x)))


def cifarnet(num_classes: int = 10) -> CifarNet:
    """Build CifarNet, for 28x28 colour images.

    >>> sum(parameter.numel() for parameter in cifarnet().parameters())
    1387786
    """
    return CifarNet(num_classes)
