"""Weights that are averaged over steps."""

from typing import Any

from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from deepbilevel_lab.training.spec import RunSpec


def make_averaged(spec: RunSpec, model: nn.Module) -> AveragedModel | None:
    """Return the network that holds the averages, if the spec wants one."""
    if spec.weight_averaging is None:
        return None
    decay = spec.weight_averaging

    def blend(averages: Any, weights: Any, num_averaged: Tensor | int) -> None:
        """Take a larger share of new weights at first, or the average would stay with the initial ones for long."""
        count = int(num_averaged)
        share = 1 - min(decay, (1 + count) / (10 + count))
        for average, weight in zip(averages, weights, strict=True):
            average.copy_(average.lerp(weight, share) if average.is_floating_point() else weight)

    return AveragedModel(model, multi_avg_fn=blend, use_buffers=True)  # BatchNorm's statistics belong to its weights
