"""Which network a run trains, as a value."""

from dataclasses import dataclass

from deepbilevel.checks import choose
from deepbilevel_lab.networks.catalog import NETWORKS
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.specs import SpecError, validate


@dataclass(frozen=True)
class NetworkSpec:
    """A network of the catalog.

    Attributes:
        weights: what it starts from, if not from scratch: a file; ``data:<file>``, in the folder of the data sets;
            or ``run:<id>``, the network of another run.
        dropout: the share of numbers that dropout sets to zero, instead of the network's own.

    >>> NetworkSpec("cifarnet", dropout=0.7)
    NetworkSpec(name='cifarnet', weights=None, dropout=0.7)
    """

    name: str
    weights: str | None = None
    dropout: float | None = None

    def __post_init__(self) -> None:
        validate(self)
        entry = NETWORKS[choose("network", self.name, NETWORKS)]
        referred_run(self.weights, key="weights")
        if self.dropout is None:
            return
        if not 0 <= self.dropout < 1:
            raise SpecError(
                f"dropout must be at least 0 and less than 1, which would drop everything, got {self.dropout}"
            )
        if not entry.has_dropout:
            fitting = ", ".join(name for name, each in NETWORKS.items() if each.has_dropout)
            raise SpecError(f"dropout {self.dropout} has no place in {self.name}; networks with dropout: {fitting}")

    @classmethod
    def parse(cls, text: str) -> "NetworkSpec":
        """Read a name alone."""
        return cls(text)
