"""Parameters that are cut into shards: which part is here, and who has the others."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deepbilevel.distributed.ranks import Ranks
from deepbilevel.gradients import AnyGradients, Blocks, Gradients, Layout


class Shards:
    """Parameters that are cut into parts, one per process, as FSDP2 (``fully_shard``) does.

    Args:
        parameters: all of them cut by the same processes.
    """

    def __init__(self, parameters: Sequence[Any]) -> None:
        sharded = _sharded_type()
        meshes: set[Any] = {each.device_mesh if isinstance(each, sharded) else None for each in parameters}
        if len(meshes) > 1:
            raise ValueError(
                "some parameters are sharded and others are not, or not by the same processes; call fully_shard on "
                "the whole model with one mesh"
            )
        (mesh,) = meshes
        if mesh.ndim != 1 or not all(parameter.placements[0].is_shard() for parameter in parameters):
            raise ValueError(
                f"parameters are laid out as {parameters[0].placements} over a mesh of {mesh.ndim} dimensions; call "
                "fully_shard with a mesh of one dimension and nothing else that distributes parameters"
            )
        self._parameters = parameters
        self.ranks = Ranks(mesh.get_group())
        self.keep_rows: bool = all(parameter.placements[0].is_shard(0) for parameter in parameters)

    def own_part(self, tensor: Any) -> Tensor:
        """Return the part of a parameter or gradient that is here."""
        return tensor.to_local()

    def own_parts(self, tensors: Gradients) -> Gradients:
        """Return the parts that are here, by position."""
        return {position: self.own_part(each) for position, each in tensors.items()}

    def joined(self, position: int, part: Tensor) -> Tensor:
        """Return a tensor cut like the parameter at ``position``, of which ``part`` is here."""
        like = self._parameters[position]
        return _sharded_type().from_local(
            part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


class ShardedBlocks(Blocks):
    """Blocks that measure whole parameters, of which a part is here.

    Args:
        owners: for each parameter the block it belongs to.
        ranks: who has the other parts.
    """

    def __init__(self, owners: Sequence[int], ranks: Ranks) -> None:
        super().__init__(owners)
        self._ranks = ranks

    def measure(self, gradients: AnyGradients, others: Sequence[AnyGradients]) -> tuple[Tensor, list[Tensor]]:
        """Measure the own parts and add up over all processes, in one small message."""
        own_norms, own_dots = super().measure(gradients, others)
        sq_norms, *dots = self._ranks.add_up([own_norms, *own_dots])
        return sq_norms, dots


class ShardedLayout(Layout):
    """The layout of parameters of which a part is here.

    Args:
        parts: of the parameters, those that are here.
        owners: for each parameter the number of the module that owns it, if known.
        whole: the parameters.
        ranks: who has the other parts.
    """

    def __init__(self, parts: Sequence[Tensor], owners: Sequence[int] | None, whole: Sequence[Tensor], ranks: Ranks):
        super().__init__(parts, owners)
        self._whole = whole
        self._ranks = ranks

    def mean(self, total: Tensor, gradients: Gradients) -> Tensor:
        """Return a sum over all numbers of the gradients as their mean."""
        (total,) = self._ranks.add_up([total.reshape(1)])
        return total.squeeze() / sum(self._whole[position].numel() for position in gradients)

    def any(self, flag: Tensor) -> Tensor:
        """Return whether something is true of any part of the parameters."""
        (count,) = self._ranks.add_up([flag.reshape(1).to(torch.float32)])
        return count.squeeze() > 0

    def _make_blocks(self, owners: Sequence[int]) -> Blocks:
        return ShardedBlocks(owners, self._ranks)


def find_shards(parameters: Sequence[Tensor]) -> Shards | None:
    """Return how parameters are cut, or nothing where they are whole."""
    sharded = _sharded_type()
    return Shards(parameters) if sharded and any(isinstance(each, sharded) for each in parameters) else None


def _sharded_type() -> Any:
    # Who has no such tensor need not load the module, which takes a while.
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)
