"""Reading, comparing, adding up and writing back the gradients of a model's parameters.

This module knows tensors and where they live; it does not know what a validation mini-batch is or how weights
come about. Everything stays on the device: no function here waits for a value (no ``.item()``), so mini-batches
queue up on an accelerator as in an ordinary loop.
"""

# foreach kernels, one launch for many tensors, are what torch's own optimizers are built on; torch documents them
# (torch._foreach_add and its siblings) but spells them with an underscore.
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

import torch
from torch import Tensor

from deepbilevel.outer_products import OuterProducts

_WIDE = {torch.float32, torch.float64}

Gradients = dict[int, Tensor]
"""Position of a parameter -> its gradient. A parameter the loss did not touch has no entry."""

AnyGradients = Mapping[int, Tensor | OuterProducts]
"""The same, where some may not be multiplied out; then they are not in any gradient of the group."""


def take_gradients(parameters: Sequence[Tensor]) -> Gradients:
    """Move ``.grad`` out of the parameters, without a copy; afterwards they have none."""
    taken: Gradients = {}
    for position, parameter in enumerate(parameters):
        if parameter.grad is not None:
            taken[position] = parameter.grad
            parameter.grad = None
    return taken


@contextmanager
def emptied_gradients(parameters: Sequence[Tensor]) -> Generator[None]:
    """Let parameters have no gradient, for others to come; after an error they have what they had."""
    before = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    except BaseException:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient
        raise


def put_gradients(parameters: Sequence[Tensor], gradients: Gradients) -> None:
    """Make ``gradients`` the ``.grad`` of the parameters; a parameter without an entry gets none."""
    for position, parameter in enumerate(parameters):
        gradient = gradients.get(position)
        parameter.grad = None if gradient is None else gradient.to(parameter.dtype)


def scale_gradients(gradients: Gradients, factor: Tensor) -> None:
    """Multiply every gradient by one number, in place."""
    torch._foreach_mul_(list(gradients.values()), factor)


def multiply_out(gradients: AnyGradients) -> Gradients:
    """Return gradients as tensors, all of them."""
    return {p: each.dense() if isinstance(each, OuterProducts) else each for p, each in gradients.items()}


def widen_gradients(gradients: Gradients) -> Gradients:
    """Return gradients of float32 at the least: adding up in half precision would lose what is small."""
    return {
        p: each if each.dtype in _WIDE else each.to(torch.promote_types(each.dtype, torch.float32))
        for p, each in gradients.items()
    }


def add_gradients(sums: Gradients, gradients: Gradients) -> None:
    """Add to running sums in place; a gradient without a sum yet becomes one, and must not be used elsewhere."""
    known = [position for position in gradients if position in sums]
    if known:
        torch._foreach_add_([sums[position] for position in known], [gradients[position] for position in known])
    sums.update({position: gradient for position, gradient in gradients.items() if position not in sums})


def silence_unless(sound: Tensor, gradients: Gradients) -> None:
    """Make gradients zero in place unless ``sound`` is true; nobody waits for it on a device."""
    if _is_at_hand(sound) and sound.tolist():
        return
    for gradient in gradients.values():
        gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)  # 0 * nan is nan
    torch._foreach_mul_(list(gradients.values()), sound.to(torch.float32))


def blend_gradients(held: Gradients, gradients: Gradients, kept: Tensor) -> Gradients:
    """Return ``kept * held + (1 - kept) * gradients``; an absent gradient counts as zero.

    ``gradients`` must be finite and are used up; ``held`` stays as it is.
    """
    for position, gradient in gradients.items():
        if position in held:
            gradient.lerp_(held[position].to(gradient), kept.to(gradient))
        else:
            gradient.mul_(1 - kept)
    return gradients | {position: each * kept for position, each in held.items() if position not in gradients}


class Blocks:
    """Which parameters share a weight: all of the model's as one vector, or those of each module.

    Statistics come out with one entry per block, so that weights per layer are the same code as weights per model.

    Args:
        owners: for each parameter the block it belongs to, counted from zero.
        over_shards: turns numbers of parts of the gradients, where these are cut, into those of the whole.
    """

    def __init__(
        self, owners: Sequence[int], over_shards: Callable[[Sequence[Tensor]], Sequence[Tensor]] = lambda own: own
    ) -> None:
        self._over_shards = over_shards
        self._members: list[list[int]] = [[] for _ in range(max(owners) + 1)]
        for position, owner in enumerate(owners):
            self._members[owner].append(position)

    def dots(self, left: AnyGradients, right: AnyGradients) -> Tensor:
        """Return the inner products ``<left, right>``, shape ``[num_blocks]``; an absent gradient counts as zero."""
        (dots,) = self._over_shards([self._own_dots(left, right)])
        return dots

    def sq_norms(self, gradients: AnyGradients) -> Tensor:
        """Return the squared norms ``|gradient|^2``, shape ``[num_blocks]``."""
        return self.measure(gradients, [])[0]

    def measure(self, gradients: AnyGradients, others: Sequence[AnyGradients]) -> tuple[Tensor, list[Tensor]]:
        """Return squared norms, and inner products with each of the others, at once."""
        own = [self._own_sq_norms(gradients), *(self._own_dots(each, gradients) for each in others)]
        sq_norms, *dots = self._over_shards(own)
        return sq_norms, dots

    def _own_dots(self, left: AnyGradients, right: AnyGradients) -> Tensor:
        wide = _at_least_float32(left)
        parts = {p: _dot(left[p], right[p], wide) for p in left if p in right}
        if not parts:  # torch refuses to stack nothing
            return torch.zeros(len(self._members), dtype=wide, device=next(iter(left.values())).device)
        return self._sum(parts)

    def _own_sq_norms(self, gradients: AnyGradients) -> Tensor:
        wide = _at_least_float32(gradients)
        tensors = [each for each in gradients.values() if isinstance(each, Tensor)]
        if len(tensors) < len(gradients) or _is_at_hand(tensors[0]):
            # Without launches to save, the inner product is the faster way over memory.
            sums = self._sum({p: _dot(each, each, wide) for p, each in gradients.items()})
            # Outer products that all but cancel may leave it a little below zero, which no norm is.
            return sums if len(tensors) == len(gradients) else sums.clamp(min=0)
        norms = torch._foreach_norm(tensors, 2, dtype=wide)
        return self._sum(dict(zip(gradients, torch.stack(norms).square(), strict=True)))

    def each(self, operation: Callable[[list[Tensor], Tensor], None], gradients: Gradients, numbers: Tensor) -> None:
        """Apply ``operation(gradients of the block, numbers[block])`` to every block that has gradients."""
        for positions, number in zip(self.present(gradients), numbers.unbind(), strict=True):
            if positions:
                # `number` stays a tensor: `.item()` would wait for the device on every mini-batch.
                operation([gradients[position] for position in positions], number)

    def present(self, gradients: AnyGradients) -> list[list[int]]:
        """Return for each block the positions that have a gradient."""
        return [[position for position in members if position in gradients] for members in self._members]

    def _sum(self, parts: dict[int, Tensor]) -> Tensor:
        """Add up one number per parameter to one number per block."""
        if len(self._members) == 1:
            return torch.stack(list(parts.values())).sum().reshape(1)
        blocks = [[parts[position] for position in members if position in parts] for members in self._members]
        # One stack for all blocks, and a split that views it: a small operation costs as much as a small layer.
        numbers = torch.stack([part for block in blocks for part in block])
        return torch.stack([block.sum() for block in numbers.split([len(block) for block in blocks])])


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

    def add_to(self, total: "WeightedGradientSum", weights: Tensor) -> None:
        """Add ``weights[i] * gradients[i]`` for all that are held; they are used up."""
        for each, gradients in zip(weights, self.gradients, strict=True):
            total.add(each, gradients)
        self.gradients = []


class WeightedGradientSum:
    """Running sum of ``w_i * g_i`` in which only one ``g_i`` is alive at a time.

    Dividing by ``sum |w_i|`` at the end equals normalising first: the divisor is one number shared by every
    term. So memory does not grow with the number of compared mini-batches.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.gradients: Gradients = {}
        self._products: dict[int, list[OuterProducts]] = {}  # multiplied out once, for the whole group

    def add(self, weights: Tensor, gradients: AnyGradients) -> None:
        """Add ``weights[block] * gradient``. The gradients are used up: they are overwritten or kept."""
        tensors = {position: each for position, each in gradients.items() if isinstance(each, Tensor)}
        if len(tensors) < len(gradients):
            self._add_products(weights, gradients)
        tensors = widen_gradients(tensors)
        if _is_at_hand(weights):
            self._add_at_once(weights.tolist(), tensors)
            return
        for gradient in tensors.values():
            # 0 * nan is nan: a weight of zero alone does not silence a gradient that is not finite.
            gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self._blocks.each(torch._foreach_mul_, tensors, weights)
        add_gradients(self.gradients, tensors)

    def _add_products(self, weights: Tensor, gradients: AnyGradients) -> None:
        for weight, positions in zip(weights.unbind(), self._blocks.present(gradients), strict=True):
            for position in positions:
                gradient = gradients[position]
                if isinstance(gradient, OuterProducts):
                    wide = gradient if gradient.dtype in _WIDE else gradient.to(torch.float32)
                    scaled = wide.without_infinities().scaled(weight)
                    self._products.setdefault(position, []).append(scaled)

    def _add_at_once(self, weights: list[float], gradients: Gradients) -> None:
        """Do the same where weights are numbers: in one pass over memory, and in none if the weight is zero."""
        for weight, positions in zip(weights, self._blocks.present(gradients), strict=True):
            known = [position for position in positions if position in self.gradients]
            if known and weight != 0:
                sums = [self.gradients[position] for position in known]
                torch._foreach_add_(sums, [gradients[position] for position in known], alpha=weight)
            for position in positions:
                if position not in self.gradients:
                    gradient = gradients[position]
                    self.gradients[position] = gradient.mul_(weight) if weight != 0 else gradient.zero_()

    def divided_by(self, divisors: Tensor) -> Gradients:
        """Return the sum divided by ``divisors[block]``; an infinite divisor gives zero. The sum is used up."""
        total = self.gradients
        products = {position: OuterProducts.joined(each).dense() for position, each in self._products.items()}
        add_gradients(total, products)
        self._blocks.each(torch._foreach_div_, total, divisors)
        for gradient in total.values():
            gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)  # weights beyond float's range: inf / inf
        self.gradients, self._products = {}, {}
        return total


def _is_at_hand(numbers: Tensor) -> bool:
    """Whether reading a number waits for nothing."""
    return numbers.device.type == "cpu"


def _dot(left: Tensor | OuterProducts, right: Tensor | OuterProducts, wide: torch.dtype) -> Tensor:
    if isinstance(left, OuterProducts):
        return left.to(wide).dot(right.to(wide))
    if isinstance(right, OuterProducts):
        return right.to(wide).dot(left.to(wide))
    if not (left.is_contiguous() and right.is_contiguous()):
        # Vectors in memory order: autograd lays gradients out densely, like their parameters, so this views a
        # channels_last gradient where `.flatten()` would have to copy it.
        order = sorted(range(left.dim()), key=left.stride, reverse=True)
        left, right = left.permute(order), right.permute(order)
    first = left.reshape(-1)
    second = first if left is right else right.reshape(-1)  # every view counts: small layers are many
    if first.dtype != wide or second.dtype != wide:
        first, second = first.to(wide), second.to(wide)
    return torch.dot(first, second)


def _at_least_float32(gradients: AnyGradients) -> torch.dtype:
    others = {gradient.dtype for gradient in gradients.values()} - {torch.float32}  # mostly none, and nothing to ask
    return reduce(torch.promote_types, others, torch.float32)
