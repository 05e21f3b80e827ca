"""How images are grouped into the mini-batches that are compared, as a value."""

from dataclasses import dataclass

from deepbilevel.sampling.draws import Draw
from deepbilevel.sampling.pools import OnRare
from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class GroupSpec:
    """The arguments of :class:`~deepbilevel.MatchedGroups`; the optimizer steps once per group.

    Attributes:
        num_batches: k, how many mini-batches are compared.
        batch_size: images of each.
        draw: how a group's labels are drawn.
        matched: whether its mini-batches carry the same labels; ``None`` leaves it to the method.
        holdout: the fraction of each class that only ever validates.
        on_rare: what to do with a class that has too few images for a group.
    """

    num_batches: int = 8
    batch_size: int = 16
    draw: Draw = "shuffled"
    matched: bool | None = None
    holdout: float | None = None
    on_rare: OnRare = "raise"

    def __post_init__(self) -> None:
        validate(self)
        if self.num_batches < 2:
            raise SpecError(f"num_batches must be at least 2, or nothing could be compared, got {self.num_batches}")
        if self.batch_size < 1:
            raise SpecError(f"batch_size must be at least 1, got {self.batch_size}")
        if self.holdout is not None and not 0 < self.holdout < 1:
            raise SpecError(f"holdout must be a fraction between 0 and 1, got {self.holdout}")

    @property
    def size(self) -> int:
        """Images of a whole group."""
        return self.num_batches * self.batch_size
