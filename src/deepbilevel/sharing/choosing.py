"""Which of the ways to share a group is in force: alone, in shares, with a group per process, or in shards."""

from collections.abc import Sequence
from typing import get_args

from torch import Tensor, nn

from deepbilevel.choice import choose
from deepbilevel.distributed import ProcessGroupChoice, Shards, find_ranks, find_shards
from deepbilevel.sharing.spreading import Spread
from deepbilevel.sharing.whole_group import WholeGroup

# The ways of several processes are imported by who takes them: most steps work alone.


def share_group(
    process_group: ProcessGroupChoice, spread: Spread | None, model: nn.Module | None, parameters: Sequence[Tensor]
) -> WholeGroup:
    """Return how a group is collected.

    Args:
        process_group: who shares.
        spread: what is shared; nothing stands for ``"images"`` if parameters are sharded, else for ``"batches"``.
        model: ``None`` if it is not known.
        parameters: the model's, each once.
    """
    if spread is not None:
        choose("spread", spread, get_args(Spread))
    shards = find_shards(parameters)
    if shards is not None:
        return _share_shards(shards, process_group, spread, parameters)
    ranks = find_ranks(process_group)
    if ranks is None:
        return WholeGroup()
    if spread == "images":
        raise ValueError(
            "spread='images' is for parameters that are sharded by fully_shard, which averages their gradients, and "
            "these are whole; take spread='batches' or spread='groups', or shard the model before this object is made"
        )
    if model is None:
        raise TypeError(
            "a step of several processes needs the model itself as model_or_parameters, to keep its BatchNorm "
            "statistics equal; pass it, or process_group=False to keep the group in one process"
        )
    if spread == "groups":
        from deepbilevel.sharing.averaged_groups import AveragedGroups

        return AveragedGroups(ranks, model, parameters)
    from deepbilevel.sharing.spread_group import SpreadGroup

    return SpreadGroup(ranks, model, parameters)


def _share_shards(
    shards: Shards, process_group: ProcessGroupChoice, spread: Spread | None, parameters: Sequence[Tensor]
) -> WholeGroup:
    if process_group is not None:
        raise ValueError(
            f"process_group={process_group!r} does not fit parameters that are sharded by fully_shard: the processes "
            "of their mesh share every mini-batch; leave process_group out"
        )
    if spread not in (None, "images"):
        raise ValueError(
            f"spread={spread!r} does not fit parameters that are sharded by fully_shard: every process runs its share "
            "of the images of each mini-batch; leave spread out here, and give spread='images' to MatchedGroups"
        )
    from deepbilevel.sharing.sharded_group import ShardedGroup

    return ShardedGroup(shards, parameters)
