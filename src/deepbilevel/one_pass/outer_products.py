"""The gradient of a matrix before it is multiplied out.

A linear layer's gradient is ``left.T @ right``, one row per sample: what came back to the layer, and what went in. With
few samples the two are far smaller than the matrix, and inner products and sums can be had from them alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepbilevel.gradients import at_least_float32


@dataclass(frozen=True, eq=False)
class OuterProducts:
    """A matrix as the sum of outer products, ``left.T @ right``.

    >>> gradient = OuterProducts(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 0.0, 1.0]]))
    >>> gradient.dense()
    tensor([[3., 0., 1.],
            [6., 0., 2.]])
    >>> gradient.dot(gradient, torch.float32)  # the squared norm
    tensor(50.)

    Attributes:
        left: shape ``[samples, rows]``.
        right: shape ``[samples, columns]``.
    """

    left: Tensor
    right: Tensor

    @staticmethod
    def pays(num_samples: int, shape: Sequence[int]) -> bool:
        """Whether so many products take less room than the matrix they add up to."""
        rows, columns = shape
        return num_samples * (rows + columns) < rows * columns

    @staticmethod
    def joined(parts: "Sequence[OuterProducts]") -> "OuterProducts":
        """Return the sum of several."""
        return OuterProducts(torch.cat([each.left for each in parts]), torch.cat([each.right for each in parts]))

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self.left.dtype

    @property
    def device(self) -> torch.device:
        """Where its numbers lie."""
        return self.left.device

    def to(self, dtype: torch.dtype) -> "OuterProducts":
        """Return it in another type."""
        return self if self.dtype == dtype else OuterProducts(self.left.to(dtype), self.right.to(dtype))

    def dot(self, other: "OuterProducts | Tensor", dtype: torch.dtype) -> Tensor:
        """Return the inner product of the two matrices, computed in that type."""
        own = self.to(dtype)
        if isinstance(other, Tensor):
            return torch.dot((own.left @ other.to(dtype)).flatten(), own.right.flatten())
        others = other.to(dtype)
        return torch.dot((own.left @ others.left.T).flatten(), (own.right @ others.right.T).flatten())

    @staticmethod
    def weighted_sum(terms: "Sequence[tuple[Tensor, OuterProducts]]") -> Tensor:
        """Return ``sum_i weight_i * gradient_i`` as one product; what is not finite counts as zero."""
        return OuterProducts.joined([each._scaled(weight) for weight, each in terms]).dense()

    def _scaled(self, factor: Tensor) -> "OuterProducts":
        wide = self.to(at_least_float32(self.dtype))
        left, right = (each.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for each in (wide.left, wide.right))
        return OuterProducts(left * factor, right)

    def dense(self) -> Tensor:
        """Return the matrix."""
        return self.left.T @ self.right
