"""Parameters that are cut into shards: which part is here, and who has the others."""

import sys
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from deepbilevel.distributed.ranks import Ranks


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

    def joined(self, position: int, part: Tensor) -> Tensor:
        """Return a tensor cut like the parameter at ``position``, of which ``part`` is here."""
        like = self._parameters[position]
        return _sharded_type().from_local(
            part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


def find_shards(parameters: Sequence[Tensor]) -> Shards | None:
    """Return how parameters are cut, or nothing where they are whole."""
    sharded = _sharded_type()
    return Shards(parameters) if sharded and any(isinstance(each, sharded) for each in parameters) else None


def _sharded_type() -> Any:
    # Who has no such tensor need not load the module, which takes a while.
    module = sys.modules.get("torch.distributed.tensor")
    return getattr(module, "DTensor", None)
