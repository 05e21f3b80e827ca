"""Text as tokens: numbered pieces of words, as the tokenizer of a network of transformers cuts them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.specs import SpecError, validate

_MOST_TOKENS = 256  # of a row; the work of a network grows faster than their number
_LARGEST = 2**24 - 2  # tokens travel as float32, which counts that far


Tokenizer = Callable[[Sequence[str], int], list[list[int]]]
"""Cuts each text into tokens, so many at the most."""


@dataclass(frozen=True)
class TokenColumn:
    """Text as tokens: a number each, counted from 1, and zeros behind the last.

    The tokenizer is not a part of it, but of the network that it lies beside.

    Attributes:
        length: tokens of the longest training row; the rest of longer rows is left out.
    """

    kind: ClassVar[str] = "tokens"

    name: str
    length: int

    def __post_init__(self) -> None:
        validate(self)
        if not 1 <= self.length <= _MOST_TOKENS:
            raise SpecError(f"length of column {self.name!r} must lie in 1 .. {_MOST_TOKENS}, got {self.length}")

    @staticmethod
    def fit(name: str, cells: Sequence[str], tokenizer: Tokenizer) -> "TokenColumn":
        """Find out how many tokens training rows have."""
        if not any(cell.strip() for cell in cells):
            raise ValueError(f"text {name!r} holds no words; name another column with --text")
        return TokenColumn(name, max(len(tokens) for tokens in tokenizer(cells, _MOST_TOKENS)))

    @property
    def width(self) -> int:
        """How many numbers of the network's input it takes."""
        return self.length

    def encode(
        self, cells: Sequence[str], tokenizer: Tokenizer
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]]:
        """Return row, place and value of what is not zero."""
        tokens = tokenizer(cells, self.length)
        counts = [len(each) for each in tokens]
        values = 1 + np.fromiter((token for each in tokens for token in each), dtype=np.float64, count=sum(counts))
        if values.max(initial=0) > _LARGEST:
            raise ValueError(f"column {self.name!r}: the tokenizer numbers more than {_LARGEST:,} tokens; take another")
        places = np.concatenate([np.arange(count) for count in counts])
        return np.repeat(np.arange(len(cells)), counts), places, values

    def problem(self, cell: str) -> str | None:
        """Return what is wrong with a cell: nothing can be."""
        return None
