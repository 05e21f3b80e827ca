"""All gradients of a group at once, for rules that compare every two of them."""

import torch
from torch import Tensor

from deepbilevel.gradients import AnyGradients, WeightedGradientSum


class HeldGradients:
    """All gradients of a group at once, and what every two of them have in common: memory grows with each."""

    def __init__(self) -> None:
        self.gradients: list[AnyGradients] = []
        self._triangle: list[list[Tensor]] = []

    def add(self, gradients: AnyGradients, dots: list[Tensor], sq_norms: Tensor) -> None:
        """Keep gradients, whose inner products with all before them are known, and their squared norms."""
        self._triangle.append([*dots, sq_norms])
        self.gradients.append(gradients)

    def gram(self) -> Tensor:
        """Return all inner products, shape ``[num_blocks, n, n]``."""
        count = len(self._triangle)
        rows = [self._triangle[max(i, j)][min(i, j)] for i in range(count) for j in range(count)]
        return torch.stack(rows, dim=1).reshape(-1, count, count)

    def add_to(self, total: WeightedGradientSum, weights: Tensor) -> None:
        """Add ``weights[i] * gradients[i]`` for all that are held; they are used up."""
        for each, gradients in zip(weights, self.gradients, strict=True):
            total.add(each, gradients)
        self.gradients = []
