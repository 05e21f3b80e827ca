"""Which part of an epoch's groups this process yields. Knows how many processes there are, and no label."""

from dataclasses import dataclass

from deepbilevel.distributed import Ranks
from deepbilevel.sampling.labels import Indices
from deepbilevel.sharing import Spread


@dataclass(frozen=True)
class OwnPart:
    """A part of ``[groups, num_batches, batch_size]``; all of it where a process works alone.

    Attributes:
        rank: the own place among the processes.
        size: their number.
        spread: what is cut into parts.
        num_batches: k, the mini-batches of a group.
    """

    rank: int
    size: int
    spread: Spread
    num_batches: int

    @property
    def places(self) -> range:
        """Which mini-batches of a group are yielded."""
        return range(self.rank, self.num_batches, self.size) if self.spread == "batches" else range(self.num_batches)

    @property
    def at_once(self) -> int:
        """How many groups all processes together go through, while this one goes through one."""
        return self.size if self.spread == "groups" else 1

    @property
    def stride(self) -> int:
        """How many mini-batches all processes together go through meanwhile."""
        return self.at_once * self.num_batches

    def of_epoch(self, epoch: Indices) -> Indices:
        """Return the own groups, and the own images of each mini-batch; equally many in all processes."""
        if self.spread == "groups":
            whole = len(epoch) // self.size * self.size
            return epoch[self.rank : whole : self.size]
        return epoch[..., self.rank :: self.size] if self.spread == "images" else epoch


def find_own_part(ranks: Ranks | None, spread: Spread, *, num_batches: int, batch_size: int) -> OwnPart:
    """Return this process's part, or refuse what cannot be cut into such parts."""
    if ranks is None:
        return OwnPart(0, 1, spread, num_batches)
    if spread == "batches":
        ranks.check_share(num_batches)
    if spread == "images" and batch_size % ranks.size:
        raise ValueError(
            f"batch_size={batch_size} images cannot be spread evenly over {ranks.size} processes, so that a mean of "
            f"their losses would not be the mini-batch's; take a multiple of {ranks.size}"
        )
    return OwnPart(ranks.rank, ranks.size, spread, num_batches)
