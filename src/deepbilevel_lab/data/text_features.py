"""Text as numbers: words and pairs of words, hashed into a fixed number of places and weighted by how rare they are.

Nothing but the weights is fitted, so a text column is a list of numbers, and no vocabulary has to be kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from deepbilevel_lab.specs import SpecError, validate

_PLACES = 2**13
_MOST_PLACES = 2**20
_MOST_IDF = 50  # of 2**64 rows it is 45
_LENGTH = 20.0  # at length 1 the first layer's outputs are so small that training hardly starts


@dataclass(frozen=True)
class TextColumn:
    """Text, as TF-IDF of hashed words and pairs of words; all texts have the same length, an empty one the length 0.

    Attributes:
        idf: the weight of each place, the larger the fewer training rows have a word in it.
    """

    kind: ClassVar[str] = "text"

    name: str
    idf: tuple[float, ...]

    def __post_init__(self) -> None:
        validate(self)
        if not 1 <= len(self.idf) <= _MOST_PLACES:
            raise SpecError(f"idf of column {self.name!r} must have 1 to {_MOST_PLACES:,} entries, got {len(self.idf)}")
        if not all(1 <= weight <= _MOST_IDF for weight in self.idf):  # a text of weight 0 would be divided by it
            raise SpecError(f"idf of column {self.name!r} must lie in 1 .. {_MOST_IDF}; train the network again")

    @staticmethod
    def fit(name: str, cells: Sequence[str]) -> "TextColumn":
        """Weigh the words of training rows."""
        counts = _hashed(cells, _PLACES)
        if counts.nnz == 0:
            raise ValueError(f"text {name!r} holds no words; name another column with --text")
        frequency = np.bincount(counts.indices, minlength=_PLACES)
        idf = np.log((1 + len(cells)) / (1 + frequency)) + 1
        return TextColumn(name, tuple(idf.tolist()))

    @property
    def width(self) -> int:
        """How many numbers of the network's input it takes."""
        return len(self.idf)

    def encode(self, cells: Sequence[str]) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]]:
        """Return row, place and value of what is not zero."""
        counts = _hashed(cells, self.width)
        rows = np.repeat(np.arange(len(cells)), np.diff(counts.indptr))
        values = (1 + np.log(counts.data)) * np.array(self.idf)[counts.indices]
        lengths = np.sqrt(np.bincount(rows, weights=values**2, minlength=len(cells)))
        return rows, counts.indices, _LENGTH * values / lengths[rows]

    def problem(self, cell: str) -> str | None:
        """Return what is wrong with a cell: nothing can be."""
        return None


def _hashed(cells: Sequence[str], places: int) -> Any:
    """Return how often each place is met in each text, as a sparse matrix."""
    try:
        from sklearn.feature_extraction.text import HashingVectorizer  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise ImportError("text needs scikit-learn; run: pip install 'deepbilevel[cli]'") from error
    # One letter is a word too: "I" in English, and most words in Chinese once they are separated.
    settings: dict[str, Any] = {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"}
    return HashingVectorizer(n_features=places, alternate_sign=False, norm=cast(Any, None), **settings).transform(cells)
