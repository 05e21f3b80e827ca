"""Comparing and adding up the gradients of a model's parameters.

This module knows tensors and which of them belong together; it does not know what a validation mini-batch is or how
weights come about. Everything stays on the device: no function here waits for a value (no ``.item()``), so mini-batches
queue up on an accelerator as in an ordinary loop.
"""

# foreach kernels, one launch for many tensors, are what torch's own optimizers are built on; torch documents them
# (torch._foreach_add and its siblings) but spells them with an underscore.
# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, Protocol

import torch
from torch import Tensor

from deepbilevel.parameters import Gradients as Gradients
from deepbilevel.parameters import Parameters as Parameters

_WIDE = {torch.float32, torch.float64}


class LazyGradient(Protocol):
    """A gradient that is not multiplied out yet: inner products and sums can be had without its full size."""

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its numbers are."""
        ...

    def dot(self, other: Any, dtype: torch.dtype) -> Tensor:
        """Return the inner product with another gradient of the same kind or a tensor."""
        ...

    @staticmethod
    def weighted_sum(terms: "Sequence[tuple[Tensor, Any]]") -> Tensor:
        """Return ``sum_i weight_i * gradient_i`` multiplied out, in float32 at the least."""
        ...


AnyGradients = Mapping[int, Tensor | LazyGradient]
"""Gradients for rules that take some of them not multiplied out (``takes_products``)."""


def scale_gradients(gradients: Gradients, factor: Tensor) -> None:
    """Multiply every gradient by one number, in place."""
    torch._foreach_mul_(list(gradients.values()), factor)


def widen_gradients(gradients: Gradients) -> Gradients:
    """Return gradients of float32 at the least: adding up in half precision would lose what is small."""
    return {p: each if each.dtype in _WIDE else each.to(at_least_float32(each.dtype)) for p, each in gradients.items()}


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which numbers of a type are added up."""
    return dtype if dtype in _WIDE else torch.promote_types(dtype, torch.float32)


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


def wide_zeros(parameter: Tensor) -> Tensor:
    """Return zeros of the parameter's shape, of float32 at the least."""
    return torch.zeros_like(parameter, dtype=at_least_float32(parameter.dtype))


class Blocks:
    """Which parameters share a weight: all of the model's as one vector, or those of each module.

    Statistics come out with one entry per block, so that weights per layer are the same code as weights per model.

    Args:
        owners: for each parameter the block it belongs to, counted from zero.
    """

    def __init__(self, owners: Sequence[int]) -> None:
        self._members: list[list[int]] = [[] for _ in range(max(owners) + 1)]
        for position, owner in enumerate(owners):
            self._members[owner].append(position)

    def measure(self, gradients: AnyGradients, others: Sequence[AnyGradients]) -> tuple[Tensor, list[Tensor]]:
        """Return squared norms, and the inner products with each of the others, all of shape ``[num_blocks]``."""
        return self._sq_norms(gradients), [self._dots(each, gradients) for each in others]

    def sq_norms(self, gradients: AnyGradients) -> Tensor:
        """Return the squared norms ``|gradient|^2``, shape ``[num_blocks]``."""
        return self.measure(gradients, [])[0]

    def _dots(self, left: AnyGradients, right: AnyGradients) -> Tensor:
        """Return the inner products ``<left, right>``; an absent gradient counts as zero."""
        wide = _common_type(left)
        parts = {p: _dot(left[p], right[p], wide) for p in left if p in right}
        if not parts:  # torch refuses to stack nothing
            return torch.zeros(len(self._members), dtype=wide, device=next(iter(left.values())).device)
        return self._sum(parts)

    def _sq_norms(self, gradients: AnyGradients) -> Tensor:
        wide = _common_type(gradients)
        tensors = [each for each in gradients.values() if isinstance(each, Tensor)]
        if len(tensors) < len(gradients) or _is_at_hand(tensors[0]):
            # Without launches to save, the inner product is the faster way over memory.
            sums = self._sum({p: _dot(each, each, wide) for p, each in gradients.items()})
            # Products that all but cancel may leave it a little below zero, which no norm is.
            return sums if len(tensors) == len(gradients) else sums.clamp(min=0)
        norms = torch._foreach_norm(tensors, 2, dtype=wide)
        return self._sum(dict(zip(gradients, torch.stack(norms).square(), strict=True)))

    def each(self, operation: Callable[[list[Tensor], Tensor], None], gradients: Gradients, numbers: Tensor) -> None:
        """Apply ``operation(gradients of the block, numbers[block])`` to every block that has gradients."""
        for positions, number in zip(self.present(gradients), numbers.unbind(), strict=True):
            if positions:
                # `number` stays a tensor: `.item()` would wait for the device on every mini-batch.
                operation([gradients[position] for position in positions], number)

    def multiply(self, gradients: Gradients, factors: Tensor) -> None:
        """Multiply the gradients of every block by ``factors[block]``, in place."""
        self.each(torch._foreach_mul_, gradients, factors)

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


class Layout:
    """How the parameters of a model belong together: all of them as one vector, or those of each module.

    Args:
        parameters: each once.
        owners: for each parameter the number of the module that owns it; ``None`` if modules are not known.
    """

    def __init__(self, parameters: Sequence[Tensor], owners: Sequence[int] | None) -> None:
        self.parameters = parameters
        self.owners = owners

    @cached_property
    def model(self) -> Blocks:
        """All parameters as one block."""
        return self._make_blocks([0] * len(self.parameters))

    @cached_property
    def layers(self) -> Blocks:
        """One block for each module that owns parameters."""
        assert self.owners is not None  # the step has asked for a module
        return self._make_blocks(self.owners)

    def mean(self, total: Tensor, gradients: Gradients) -> Tensor:
        """Return a sum over all numbers of the gradients as their mean."""
        return total / sum(self.parameters[position].numel() for position in gradients)

    def any(self, flag: Tensor) -> Tensor:
        """Return whether something is true of any part of the parameters."""
        return flag

    def _make_blocks(self, owners: Sequence[int]) -> Blocks:
        return Blocks(owners)


class WeightedGradientSum:
    """Running sum of ``w_i * g_i`` in which only one ``g_i`` is alive at a time.

    Dividing by ``sum |w_i|`` at the end equals normalising first: the divisor is one number shared by every
    term. So memory does not grow with the number of compared mini-batches.
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.gradients: Gradients = {}
        self._lazy: dict[int, list[tuple[Tensor, LazyGradient]]] = {}  # multiplied out once, for the whole group

    def add(self, weights: Tensor, gradients: AnyGradients) -> None:
        """Add ``weights[block] * gradient``. The gradients are used up: they are overwritten or kept."""
        tensors = {position: each for position, each in gradients.items() if isinstance(each, Tensor)}
        if len(tensors) < len(gradients):
            self._add_lazy(weights, gradients)
        tensors = widen_gradients(tensors)
        if _is_at_hand(weights):
            self._add_at_once(weights.tolist(), tensors)
            return
        for gradient in tensors.values():
            # 0 * nan is nan: a weight of zero alone does not silence a gradient that is not finite.
            gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        self._blocks.multiply(tensors, weights)
        add_gradients(self.gradients, tensors)

    def _add_lazy(self, weights: Tensor, gradients: AnyGradients) -> None:
        for weight, positions in zip(weights.unbind(), self._blocks.present(gradients), strict=True):
            for position in positions:
                gradient = gradients[position]
                if not isinstance(gradient, Tensor):
                    self._lazy.setdefault(position, []).append((weight, gradient))

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
        for position, terms in self._lazy.items():
            (_, first), *_ = terms
            add_gradients(total, {position: first.weighted_sum(terms)})
        self._blocks.each(torch._foreach_div_, total, divisors)
        for gradient in total.values():
            gradient.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)  # weights beyond float's range: inf / inf
        self.gradients, self._lazy = {}, {}
        return total


def _is_at_hand(numbers: Tensor) -> bool:
    """Whether reading a number waits for nothing."""
    return numbers.device.type == "cpu"


def _dot(left: Tensor | LazyGradient, right: Tensor | LazyGradient, wide: torch.dtype) -> Tensor:
    if not isinstance(left, Tensor):
        return left.dot(right, wide)
    if not isinstance(right, Tensor):
        return right.dot(left, wide)
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


def _common_type(gradients: AnyGradients) -> torch.dtype:
    others = {gradient.dtype for gradient in gradients.values()} - {torch.float32}  # mostly none, and nothing to ask
    return reduce(torch.promote_types, others, torch.float32)
