"""``share``: the one way to ask for several processes, for a step and for its sampler."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from deepbilevel.checks import choose
from deepbilevel.distributed.averaged_step import AveragedStep
from deepbilevel.distributed.ranks import find_ranks
from deepbilevel.distributed.sharded_step import ShardedStep
from deepbilevel.distributed.shards import find_shards
from deepbilevel.distributed.spread_step import SpreadStep
from deepbilevel.distributed.spreads import Spread, note_sampler
from deepbilevel.sampling import MatchedGroups
from deepbilevel.sampling.draws import Part
from deepbilevel.step import GroupStep

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Shared = TypeVar("Shared", bound="GroupStep[Any] | MatchedGroups")
_SPREADS = ("batches", "groups", "images", "nothing")


def share(
    step_or_sampler: Shared,
    spread: Literal["batches", "groups", "images", "nothing"],
    *,
    process_group: "ProcessGroup | None" = None,
) -> Shared:
    """Return a step or sampler that works together with the other processes of ``torch.distributed``.

    Share the step and its :class:`~deepbilevel.MatchedGroups` alike, after the process group is initialised. With one
    process the result works alone, so the same program runs with and without ``torchrun``.

    >>> import torch
    >>> from deepbilevel import Bilevel, MatchedGroups
    >>> model = torch.nn.Linear(2, 2)
    >>> sampler = share(MatchedGroups([0, 0, 0, 0], num_batches=2, batch_size=1, seed=0), "batches")
    >>> bilevel = share(Bilevel(model, num_batches=2), "batches")

    Args:
        step_or_sampler: what is shared. A step must be made from the model itself, which holds the same numbers in all
            processes; of the step that is returned, all processes call the same methods in the same order.
        spread: what the processes share. ``"batches"``: the k mini-batches of one group; mini-batch i belongs to rank
            i mod size, and ``fill`` leaves the same gradient and the same report, of all k, in all processes.
            ``"groups"``: every process has a whole group and a report of its own, and ``fill`` leaves the mean of
            their gradients; of an epoch the last ``groups % size`` groups are left out, other images in every epoch.
            ``"images"``: some images of every mini-batch, for parameters that are sharded by ``fully_shard``; the
            number of processes must divide ``batch_size``. ``"nothing"``: every process works by itself.
        process_group: the processes; all of them unless given.
    """
    choose("spread", spread, _SPREADS)
    if isinstance(step_or_sampler, MatchedGroups):
        return cast(Shared, _share_sampler(step_or_sampler, spread, process_group))
    if isinstance(step_or_sampler, GroupStep):  # pyright: ignore[reportUnnecessaryIsInstance]
        return cast(Shared, _share_step(step_or_sampler, spread, process_group))
    raise TypeError(
        f"step_or_sampler must be a step, such as Bilevel, or MatchedGroups, got {type(step_or_sampler).__name__}"
    )


def _share_sampler(
    sampler: MatchedGroups, spread: Spread | Literal["nothing"], process_group: "ProcessGroup | None"
) -> MatchedGroups:
    if spread == "nothing" or (ranks := find_ranks(process_group)) is None:
        return sampler.alone()
    if spread == "batches":
        ranks.check_share(sampler.num_batches)
    if spread == "images" and sampler.batch_size % ranks.size:
        raise ValueError(
            f"batch_size={sampler.batch_size} images cannot be spread evenly over {ranks.size} processes, so that a "
            f"mean of their losses would not be the mini-batch's; take a multiple of {ranks.size}"
        )
    dealt = sampler.dealt(Part(ranks.rank, ranks.size, spread, sampler.num_batches))
    note_sampler(dealt, ranks.members, spread)
    return dealt


def _share_step(
    step: GroupStep[Any], spread: Spread | Literal["nothing"], process_group: "ProcessGroup | None"
) -> GroupStep[Any]:
    if step.is_shared:
        raise ValueError("this step is shared already; make a new one for another spread")
    shards = find_shards(step.parameters)
    if shards is not None:
        if process_group is not None or spread != "images":
            raise ValueError(
                f"spread={spread!r} and process_group={process_group!r} do not fit parameters that are sharded by "
                "fully_shard, where the processes of their mesh share every mini-batch; take share(..., 'images') for "
                "step and sampler, and leave process_group out"
            )
        return _continued(step, lambda: ShardedStep(step, shards))
    if spread == "nothing" or (ranks := find_ranks(process_group)) is None:
        step.alone_on_purpose = True
        return step
    if spread == "images":
        raise ValueError(
            "spread='images' is for parameters that are sharded by fully_shard, which averages their gradients, and "
            "these are whole; take 'batches' or 'groups', or shard the model before the step is made"
        )
    return _continued(step, lambda: (SpreadStep if spread == "batches" else AveragedStep)(step, ranks))


def _continued(step: GroupStep[Any], make: Callable[[], GroupStep[Any]]) -> GroupStep[Any]:
    """Make a shared step that goes on where ``step`` is, if that is between two groups."""
    state = step.state_dict()
    shared = make()
    shared.load_state_dict(state)
    return shared
