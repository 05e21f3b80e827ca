"""Several mini-batches as one. Knows tensors and the containers they come in; does not know what they are for."""

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

Batch = TypeVar("Batch")


def join_batches(batches: Sequence[Batch]) -> tuple[Batch, list[int]]:
    """Return mini-batches as one, and how many samples each has.

    >>> join_batches([(torch.zeros(2, 5), torch.tensor([0, 1])), (torch.ones(1, 5), torch.tensor([2]))])[0][1]
    tensor([0, 1, 2])
    """
    leaves, structures = zip(*(tree_flatten(batch) for batch in batches), strict=True)
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
    joined = [torch.cat(list(parts)) for parts in zip(*leaves, strict=True)]
    return tree_unflatten(joined, structures[0]), [len(parts[0]) for parts in leaves]
