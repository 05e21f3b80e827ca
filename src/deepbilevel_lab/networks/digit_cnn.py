"""A small convolutional network for 8x8 digits, large enough to memorise wrong labels."""

from torch import Tensor, nn

from deepbilevel_lab.networks.layers import ImageShape, check_images, check_num_classes


class DigitCnn(nn.Module):
    """Two convolutions, dropout and two fully connected layers; no BatchNorm, torch's own initialisation."""

    input_shape: ImageShape = (1, 8, 8)

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 128),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(128, num_classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        check_images(images, self.input_shape)
        return self.layers(images)


def digit_cnn(num_classes: int = 10) -> DigitCnn:
    """Build the network of the demonstration, for 8x8 images of one channel.

    >>> sum(parameter.numel() for parameter in digit_cnn().parameters())
    71754
    """
    return DigitCnn(num_classes)
