"""Reading, comparing, adding up and writing back the gradients of a model's parameters.

This module knows tensors and where they live; it does not know what a validation mini-batch is or how weights
come about. Everything stays on the device: no function here waits for a value (no ``.item()``), so mini-batches
queue up on an accelerator as in an ordinary loop.
"""

# foreach kernels, one launch for many tensors, are what torch's own optimizers are built on; torch documents them
# (torch._foreach_add and its siblings) but spells them with an underscore.
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from collections.abc import Callable, Iterable, Sequence
from functools import reduce

import torch
from torch import Tensor

Gradients = dict[int, Tensor]
"""Position of a parameter -> its gradient. A parameter the loss did not touch has no entry."""


def take_gradients(parameters: Sequence[Tensor]) -> Gradients:
    """Move ``.grad`` out of the parameters, without a copy; afterwards they have none."""
    taken: Gradients = {}
    for position, parameter in enumerate(parameters):
        if parameter.grad is not None:
            taken[position] = parameter.grad
            parameter.grad = None
    return taken


def put_gradients(parameters: Sequence[Tensor], gradients: Gradients) -> None:
    """Make ``gradients`` the ``.grad`` of the parameters; a parameter without an entry gets none."""
    for position, parameter in enumerate(parameters):
        gradient = gradients.get(position)
        parameter.grad = None if gradient is None else gradient.to(parameter.dtype)


def scale_gradients(gradients: Gradients, factor: Tensor) -> None:
    """Multiply every gradient by one number, in place."""
    torch._foreach_mul_(list(gradients.values()), factor)


class Blocks:
    """Which parameters share a weight: all of the model's as one vector, or those of each module.

    Statistics come out with one entry per block, so that weights per layer are the same code as weights per model.

    Args:
        owners: for each parameter the block it belongs to, counted from zero.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self.owners = list(owners)
        self.num_blocks = max(owners) + 1

    def dots(self, left: Gradients, right: Gradients) -> Tensor:
        """Return the inner products ``<left, right>``, shape ``[num_blocks]``; an absent gradient counts as zero."""
        wide = _at_least_float32(*left.values())
        shared = [position for position in left if position in right]
        return self._sum([(p, _dot(left[p], right[p], wide)) for p in shared], left)

    def sq_norms(self, gradients: Gradients) -> Tensor:
        """Return the squared norms ``|gradient|^2``, shape ``[num_blocks]``."""
        norms = torch._foreach_norm(list(gradients.values()), 2, dtype=_at_least_float32(*gradients.values()))
        return self._sum([(p, norm.square()) for p, norm in zip(gradients, norms, strict=True)], gradients)

    def _sum(self, parts: Iterable[tuple[int, Tensor]], like: Gradients) -> Tensor:
        """Add up one number per parameter to one number per block."""
        zero = next(iter(like.values())).new_zeros((), dtype=_at_least_float32(*like.values()))
        members: list[list[Tensor]] = [[zero] for _ in range(self.num_blocks)]
        for position, part in parts:
            members[self.owners[position]].append(part)
        return torch.stack([torch.stack(block).sum() for block in members])


class WeightedGradientSum:
    """Running sum of ``w_i * g_i`` in which only one ``g_i`` is alive at a time.

    Dividing by ``sum |w_i|`` at the end equals normalising first: the divisor is one number shared by every
    term. So memory does not grow with the number of compared mini-batches.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._sum: Gradients = {}

    def add(self, weights: Tensor, gradients: Gradients) -> None:
        """Add ``weights[block] * gradient``. The gradients are used up: they are overwritten or kept."""
        for position, gradient in gradients.items():
            # Accumulating in half precision would lose what small weights contribute.
            gradients[position] = gradient.to(_at_least_float32(gradient))
            # 0 * nan is nan: a weight of zero alone does not silence a gradient that is not finite.
            gradients[position].nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self._each_block(torch._foreach_mul_, gradients, weights)
        known = [position for position in gradients if position in self._sum]
        if known:
            torch._foreach_add_([self._sum[position] for position in known], [gradients[p] for p in known])
        self._sum = gradients | self._sum

    def divided_by(self, divisors: Tensor) -> Gradients:
        """Return the sum divided by ``divisors[block]``; an infinite divisor gives zero. The sum is used up."""
        self._each_block(torch._foreach_div_, self._sum, divisors)
        for gradient in self._sum.values():
            gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)  # weights beyond float's range: inf / inf
        result, self._sum = self._sum, {}
        return result

    def _each_block(
        self, operation: Callable[[list[Tensor], Tensor], None], gradients: Gradients, numbers: Tensor
    ) -> None:
        for block, number in enumerate(numbers.unbind()):
            members = [gradient for position, gradient in gradients.items() if self._blocks.owners[position] == block]
            if members:
                # `number` stays a tensor: `.item()` would wait for the device on every mini-batch.
                operation(members, number)


def _dot(left: Tensor, right: Tensor, wide: torch.dtype) -> Tensor:
    # Vectors in memory order: autograd lays gradients out densely, like their parameters, so this views a
    # channels_last gradient where `.flatten()` would have to copy it.
    order = sorted(range(left.dim()), key=left.stride, reverse=True)
    flat_left, flat_right = (gradient.permute(order).reshape(-1) for gradient in (left, right))
    return torch.dot(flat_left.to(wide), flat_right.to(wide))


def _at_least_float32(*tensors: Tensor) -> torch.dtype:
    return reduce(torch.promote_types, (tensor.dtype for tensor in tensors), torch.float32)
