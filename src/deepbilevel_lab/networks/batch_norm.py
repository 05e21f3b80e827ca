"""BatchNorm as TensorFlow's slim library sets it up: a shift per channel, and no scale."""

from torch import nn


class ShiftBatchNorm2d(nn.BatchNorm2d):
    """``(x - mean) / sqrt(var + 0.001) + bias``; a scale would be undone by the next normalisation.

    Everything else is ``nn.BatchNorm2d``, of which it is one wherever people look for BatchNorm. A forward pass moves
    the running statistics by 0.025 of the way: little, because every one of k small mini-batches moves them.
    """

    def __init__(self, num_features: int) -> None:
        super().__init__(num_features, eps=1e-3, momentum=0.025)
        self.register_parameter("weight", None)

    def reset_parameters(self) -> None:
        """Start from no shift, mean 0 and variance 1."""
        self.reset_running_stats()
        nn.init.zeros_(self.bias)
