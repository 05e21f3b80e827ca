"""Which network a run trains, as a value."""

from dataclasses import dataclass

from deepbilevel.choice import choose
from deepbilevel.networks.catalog import NETWORKS
from deepbilevel.specs import validate


@dataclass(frozen=True)
class NetworkSpec:
    """A network of the catalog, and the file with the weights it starts from, if it does not start from scratch.

    >>> NetworkSpec("cifarnet")
    NetworkSpec(name='cifarnet', weights=None)
    """

    name: str
    weights: str | None = None

    def __post_init__(self) -> None:
        validate(self)
        choose("network", self.name, NETWORKS)

    @classmethod
    def parse(cls, text: str) -> "NetworkSpec":
        """Read a name alone."""
        return cls(text)
