"""Several mini-batches as one. Knows tensors and the containers they come in; does not know what they are for."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

Batch = TypeVar("Batch")


def join_batches(
    batches: Sequence[Batch], most_samples: float, large: float = math.inf
) -> Iterator[tuple[Batch, list[int]]]:
    """Yield mini-batches joined in their order, as many as have ``most_samples``, and how many samples each has.

    A mini-batch is never cut: one that has more, or that is ``large``, is left by itself. All are checked before the
    first is yielded.

    >>> batches = [(torch.zeros(2, 5), torch.tensor([0, 1])), (torch.ones(1, 5), torch.tensor([2]))]
    >>> [((images, labels), sizes)] = join_batches(batches, most_samples=3)
    >>> labels, sizes
    (tensor([0, 1, 2]), [2, 1])
    >>> [sizes for _, sizes in join_batches(batches, most_samples=2)]
    [[2], [1]]
    >>> [sizes for _, sizes in join_batches(batches, most_samples=3, large=2)]
    [[2], [1]]
    """
    leaves, structures = zip(*(tree_flatten(batch) for batch in batches), strict=True)
    _check_alike(leaves, structures)
    sizes = [len(parts[0]) for parts in leaves]
    start = 0
    while start < len(sizes):
        end = start + 1
        while end < len(sizes) and sum(sizes[start : end + 1]) <= most_samples and max(sizes[start : end + 1]) < large:
            end += 1
        alone = end == start + 1
        joined = leaves[start] if alone else [torch.cat(parts) for parts in zip(*leaves[start:end], strict=True)]
        yield tree_unflatten(joined, structures[0]), sizes[start:end]
        start = end


def _check_alike(leaves: Sequence[list[Any]], structures: Sequence[TreeSpec]) -> None:
    for number, (parts, structure) in enumerate(zip(leaves, structures, strict=True)):
        if not parts or not all(isinstance(part, Tensor) for part in parts):
            kinds = sorted({type(part).__name__ for part in parts})
            raise TypeError(
                f"mini-batch {number} must be made of tensors to be joined with others, got {kinds}; give tensors, or "
                "tuples, lists or dictionaries of them"
            )
        shapes, firsts = ([tuple(part.shape) for part in each] for each in (parts, leaves[0]))
        if structure != structures[0] or [shape[1:] for shape in shapes] != [shape[1:] for shape in firsts]:
            raise ValueError(
                f"mini-batch {number} has tensors of shapes {shapes}, the first has {firsts}; to be joined they must "
                "be arranged alike and differ in the number of samples alone (pad sequences to one length)"
            )
        if len({shape[:1] for shape in shapes}) > 1 or () in shapes:
            raise ValueError(
                f"mini-batch {number} has tensors of shapes {shapes}; the first dimension of each must be its samples"
            )
