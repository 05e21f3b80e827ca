"""AlexNet for 227x227 images, in the form in which Caffe made it the common reference.

The paper names AlexNet and the image size only. This is the network of Krizhevsky et al. (2012) with its two halves
(three convolutions see one half of the channels each); strength of the normalisation and initial values are those
of Caffe's ``bvlc_alexnet``, whose 227 the paper's image size is.
"""

from torch import Tensor, nn

from deepbilevel_lab.networks.layers import ImageShape, ResponseNorm, check_images, check_num_classes, fill_normal


class AlexNet(nn.Module):
    """Five convolutions, two of them normalised, and three fully connected layers with dropout between."""

    input_shape: ImageShape = (3, 227, 227)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.features = nn.Sequential(
            _conv(3, 96, 11, std=0.01, bias=0.0, stride=4, padding=0),
            nn.ReLU(inplace=True),
            ResponseNorm(96, 5, alpha=1e-4),
            nn.MaxPool2d(3, 2),
            _conv(96, 256, 5, std=0.01, bias=0.1, groups=2),
            nn.ReLU(inplace=True),
            ResponseNorm(256, 5, alpha=1e-4),
            nn.MaxPool2d(3, 2),
            _conv(256, 384, 3, std=0.01, bias=0.0),
            nn.ReLU(inplace=True),
            _conv(384, 384, 3, std=0.01, bias=0.1, groups=2),
            nn.ReLU(inplace=True),
            _conv(384, 256, 3, std=0.01, bias=0.1, groups=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            _linear(256 * 6 * 6, 4096, std=0.005, bias=0.1),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            _linear(4096, 4096, std=0.005, bias=0.1),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            _linear(4096, num_classes, std=0.01, bias=0.0),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        return self.classifier(self.features(images))


def _conv(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    *,
    std: float,
    bias: float,
    stride: int = 1,
    padding: int | None = None,
    groups: int = 1,
) -> nn.Conv2d:
    padding = kernel_size // 2 if padding is None else padding
    layer = nn.Conv2d(in_channels, out_channels, kernel_size, stride, padding, groups=groups)
    fill_normal(layer, std=std, bias=bias)
    return layer


def _linear(in_features: int, out_features: int, *, std: float, bias: float) -> nn.Linear:
    layer = nn.Linear(in_features, out_features)
    fill_normal(layer, std=std, bias=bias)
    return layer


def alexnet(num_classes: int = 1000) -> AlexNet:
    """Build AlexNet, for 227x227 colour images; 60,965,224 parameters with 1000 classes."""
    return AlexNet(num_classes)
