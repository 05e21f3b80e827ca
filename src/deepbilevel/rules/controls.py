"""Controls of the paper's rule: the same groups, compared with the same validation gradient, but weighted otherwise.

- ``absolute``: ``|w|``. Does it matter that disagreement turns a gradient around?
- ``clipped``: ``max(w, 0)``. Or is it enough to leave out what disagrees?
- ``random``: ``max(n, 0)`` with n from a standard normal. Does agreement matter at all?
- ``cosine``: ``<g_v, g_i> / (|g_v| |g_i|)``. Do the lengths of gradients matter?
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from deepbilevel.checks import choose
from deepbilevel.rule import cosines
from deepbilevel.rules.bilevel_settings import BilevelSettings

Weighting = Literal["agreement", "absolute", "clipped", "random", "cosine"]
Control = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""``w_i``, ``<g_v, g_i>``, ``|g_i|^2``, ``|g_v|`` and i -> another ``w_i``; zero where a number is not finite."""


@dataclass(frozen=True)
class ControlledSettings(BilevelSettings):
    """Settings of a rule that has controls: ``weighting="agreement"`` is the rule itself."""

    weighting: Weighting = "agreement"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("weighting", self.weighting, get_args(Weighting))

    @property
    def needs_whole_parameters(self) -> str | None:
        """Why sharded parameters are refused: each process would draw other random weights."""
        return "weighting='random' draws numbers in each process" if self.weighting == "random" else None

    def control(self, num_batches: int) -> Control | None:
        """Return what takes the place of the weights of a group of k mini-batches; nothing for the rule itself."""
        match self.weighting:
            case "agreement":
                return None
            case "absolute":
                return lambda weights, dots, sq_norms, validation_norms, place: weights.abs()
            case "clipped":
                return lambda weights, dots, sq_norms, validation_norms, place: weights.clamp(min=0)
            case "cosine":
                return lambda weights, dots, sq_norms, validation_norms, place: cosines(
                    dots, sq_norms.sqrt(), validation_norms
                )
            case "random":
                return _RandomWeights(num_batches)


class _RandomWeights:
    """Draws the weights of all k mini-batches at once, so that no weight depends on which accumulator adds it."""

    def __init__(self, num_batches: int) -> None:
        self._num_batches = num_batches
        self._drawn: Tensor | None = None

    def __call__(self, weights: Tensor, dots: Tensor, sq_norms: Tensor, validation_norms: Tensor, place: int) -> Tensor:
        if self._drawn is None:
            self._drawn = torch.randn(self._num_batches, *dots.shape).clamp(min=0).to(dots)
        return torch.where(torch.isfinite(dots), self._drawn[place], 0.0)
