"""A group whose parameters are cut into shards, one per process (FSDP2): all go through all k mini-batches.

Every process runs its share of the images of each mini-batch, and torch averages the gradients and cuts them like the
parameters. What goes over memory then works on the own part alone. Only numbers are sent: inner products and squared
norms, as they are needed, and the k losses.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from deepbilevel.distributed import Shards
from deepbilevel.gradients import Gradients
from deepbilevel.sharing.same_model import checksum
from deepbilevel.sharing.spreading import check_samplers
from deepbilevel.sharing.whole_group import WholeGroup


class ShardedGroup(WholeGroup):
    """The own shards, and the way to sums over all.

    Args:
        shards: how parameters are cut.
        parameters: each once.
    """

    is_alone = False

    def __init__(self, shards: Shards, parameters: Sequence[Tensor]) -> None:
        self._shards = shards
        self._parameters = parameters
        self._checked = False

    def check_shards(self, refused: str | None = None, *, rows: str | None = None) -> None:
        """Refuse what needs more than the own part."""
        if refused is not None:
            raise ValueError(
                f"{refused}, which parameters sharded by fully_shard do not allow; choose another, or train whole "
                "parameters with spread='batches' or spread='groups'"
            )
        if rows is not None and not self._shards.keep_rows:
            raise ValueError(
                f"{rows} needs all weights of an output channel in one process; let fully_shard cut along the first "
                "dimension, as it does by itself, or choose another"
            )

    def check_equality(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Compare checksums of the settings; parameters differ by their nature."""
        if self._checked:
            return
        ranks = self._shards.ranks
        described = checksum(settings(), [(tuple(each.shape), each.requires_grad) for each in self._parameters])
        for rank, others in enumerate(ranks.numbers_of_all([described], self._parameters[0].device)):
            if others[0] != described:
                raise ValueError(
                    f"process {rank} has other settings or other trainable parameters than process {ranks.rank}; "
                    "build model and rule alike in all processes"
                )
        check_samplers(ranks.members, "images")
        self._checked = True

    def own_parts(self, tensors: Gradients) -> Gradients:
        """Return the parts that are here; they share memory with the whole."""
        return {position: self._shards.own_part(each) for position, each in tensors.items()}

    def joined_parts(self, gradients: Gradients) -> Gradients:
        """Return gradients that are cut like their parameters."""
        return {position: self._shards.joined(position, each) for position, each in gradients.items()}

    def over_shards(self, numbers: Sequence[Tensor]) -> Sequence[Tensor]:
        """Add up over all processes, in one small message."""
        return self._shards.ranks.add_up(numbers)

    def over_images(self, losses: Tensor) -> Tensor:
        """Return the means over all processes: everybody has equally many images."""
        (mean,) = self._shards.ranks.average([losses])
        return mean
