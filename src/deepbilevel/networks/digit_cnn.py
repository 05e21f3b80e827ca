"""A small convolutional network for 8x8 digits, large enough to memorise wrong labels."""

from torch import nn


def digit_cnn(num_classes: int = 10) -> nn.Sequential:
    """Build two convolutions, dropout and two fully connected layers; no BatchNorm.

    >>> sum(parameter.numel() for parameter in digit_cnn().parameters())
    71754
    """
    return nn.Sequential(
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
