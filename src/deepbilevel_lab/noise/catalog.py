"""Noise by name: the kinds that need nothing but labels, and their notation ``kind:rate``.

Noise from a matrix or from a model needs more than a word and is not listed here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy.typing as npt

from deepbilevel.checks import choose
from deepbilevel_lab.noise.flips import flip_symmetrically, flip_to_next, flip_uniformly
from deepbilevel_lab.noise.noisy_labels import NoisyLabels, read_rate


class Noise(Protocol):
    """Makes a share of the labels wrong, always the same ones for the same seed."""

    def __call__(self, clean_labels: npt.ArrayLike, rate: float, *, num_classes: int, seed: int) -> NoisyLabels:
        """Return the labels beside the clean ones."""
        ...


CATALOG: Mapping[str, Noise] = MappingProxyType(
    {
        "uniform": flip_uniformly,
        "symmetric": flip_symmetrically,
        "pair": flip_to_next,
    }
)


@dataclass(frozen=True)
class NoiseSpec:
    """A kind of the catalog and its rate; ``str`` gives the notation that :func:`parse_noise` reads."""

    kind: str
    rate: float

    def __post_init__(self) -> None:
        choose("kind of noise", self.kind, CATALOG)
        # 1 and 1.0 are the same rate and must be written alike.
        object.__setattr__(self, "rate", read_rate(self.rate))

    def __str__(self) -> str:
        return f"{self.kind}:{self.rate}"

    @classmethod
    def parse(cls, text: str) -> "NoiseSpec":
        """Read the notation; see :func:`parse_noise`."""
        return parse_noise(text)

    def apply(self, clean_labels: npt.ArrayLike, num_classes: int, seed: int) -> NoisyLabels:
        """Make this noise."""
        return CATALOG[self.kind](clean_labels, self.rate, num_classes=num_classes, seed=seed)


def parse_noise(text: str) -> NoiseSpec:
    """Read ``kind:rate``.

    >>> parse_noise("uniform:0.5")
    NoiseSpec(kind='uniform', rate=0.5)
    """
    kind, _, rate = text.partition(":")
    try:
        number = float(rate)
    except ValueError:
        # A kind that does not exist is the first thing to say, whatever stands behind it.
        example = NoiseSpec(kind, 0.5)
        raise ValueError(f"noise must be written kind:rate, such as {str(example)!r}, got {text!r}") from None
    return NoiseSpec(kind, number)
