"""The only room that knows ranks and ``torch.distributed``.

It moves numbers and flat tensors and does not know what they mean: no rule, no gradient, no module but torch's own
wrapper, whose reduction would be a second one.
"""

from deepbilevel.distributed.launching import Launch
from deepbilevel.distributed.many_processes import find_processes
from deepbilevel.distributed.ranks import Broadcast, ProcessGroupChoice, Ranks, find_ranks, switch_off_wrappers
from deepbilevel.distributed.shards import Shards, find_shards

__all__ = [
    "Broadcast",
    "Launch",
    "ProcessGroupChoice",
    "Ranks",
    "Shards",
    "find_processes",
    "find_ranks",
    "find_shards",
    "switch_off_wrappers",
]
