"""A small network for rows of numbers: fully connected layers, as wide as a run's data wants its first one."""

import math

from torch import Tensor, nn

from deepbilevel_lab.networks.layers import check_images, check_num_classes

_HIDDEN = 256


class Mlp(nn.Module):
    """Two hidden layers with dropout; no BatchNorm, torch's own initialisation. Inputs are flattened."""

    def __init__(self, num_classes: int, input_shape: tuple[int, ...]) -> None:
        super().__init__()
        check_num_classes(num_classes)
        self.input_shape = input_shape
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), _HIDDEN),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(_HIDDEN, num_classes),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        if len(self.input_shape) == 3:
            check_images(rows, (self.input_shape[0], self.input_shape[1], self.input_shape[2]))
        elif tuple(rows.shape[1:]) != self.input_shape:
            raise ValueError(
                f"rows must have the shape [batch, {', '.join(map(str, self.input_shape))}] for this network, got "
                f"{list(rows.shape)}; encode them as those it was trained on"
            )
        return self.layers(rows)


def mlp(num_classes: int = 10, input_shape: tuple[int, ...] = (1, 8, 8)) -> Mlp:
    """Build the network of tables and text; of 8x8 digits by default.

    >>> mlp(num_classes=2, input_shape=(30,)).layers[1]
    Linear(in_features=30, out_features=256, bias=True)
    """
    return Mlp(num_classes, input_shape)
