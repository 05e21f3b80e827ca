"""The median of three means, parameter by parameter (Chatterjee & Zielinski 2020, "coherent gradients").

    gradient = median(mean of part 1, mean of part 2, mean of part 3)

The mini-batches of a group are dealt out in turn, 1 2 3 1 2 3 and so on. What one part alone says, however loudly, does
not carry the median beyond the other two. Three sums and one g_i are held, whatever k is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from deepbilevel.contract import Accumulator, Blank, Memory, Outcome, Report, Rule
from deepbilevel.gradients import Gradients, Layout, add_gradients, silence_unless, wide_zeros, widen_gradients

_PARTS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class MedianReport(Report):
    """What one step did.

    Attributes:
        weights: of each mini-batch in the three means, one third for each of them; 0 where its gradient was not
            finite, and all 0 where the step is zero.
        norms: length of each of the k gradients.
    """

    norms: Tensor


@dataclass(frozen=True)
class MedianOfThree(Rule[MedianReport]):
    """The coordinate-wise median of the means of three parts of a group, which has at least three mini-batches.

    Mini-batches that are not finite are left out of their part; if a part is empty, nothing is learned.
    """

    kind: ClassVar[str] = "median-of-three"
    description: ClassVar[str] = "the median of three parts of a group, parameter by parameter"
    min_batches: ClassVar[int] = _PARTS

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_ThreeParts":
        """Return the accumulator of a new group."""
        return _ThreeParts(layout, num_batches)


class _ThreeParts(Accumulator[MedianReport]):
    def __init__(self, layout: Layout, num_batches: int) -> None:
        super().__init__()
        self._layout = layout
        self._num_batches = num_batches
        self._parts: list[Gradients] = [{} for _ in range(_PARTS)]

    def add(self, gradients: Gradients, place: int) -> None:
        norm = self._layout.model.sq_norms(gradients).sqrt()
        self.rows[place] = norm
        gradients = widen_gradients(gradients)
        silence_unless(torch.isfinite(norm).squeeze(), gradients)
        add_gradients(self._parts[place % _PARTS], gradients)

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        yield [(part, wide_zeros) for part in self._parts]

    def finish(self, losses: Tensor) -> Outcome[MedianReport]:
        (norms,) = self.columns()
        finite = torch.isfinite(norms)
        counts = torch.stack([finite[part::_PARTS].sum() for part in range(_PARTS)]).to(norms.dtype)
        sound = (counts > 0).all()
        learned = torch.zeros_like(sound)
        result: Gradients = {}
        for position in dict.fromkeys(position for part in self._parts for position in part):
            present = [part[position] for part in self._parts if position in part]
            low, middle, high = (part.pop(position, torch.zeros_like(present[0])) for part in self._parts)
            for mean, count in zip((low, middle, high), counts, strict=True):
                mean.div_(count.clamp(min=1))
            smaller, larger = torch.minimum(low, middle), torch.maximum(low, middle)
            result[position] = torch.maximum(smaller, torch.minimum(larger, high)).mul_(sound)
            learned = learned | result[position].any()
        places = torch.arange(self._num_batches, device=counts.device) % _PARTS
        weights = finite * self._layout.any(learned) / (_PARTS * counts.clamp(min=1)[places])
        return Outcome(result, MedianReport(weights=weights, norms=norms, losses=losses, finite=finite))
