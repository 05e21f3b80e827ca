"""Controls of the paper's rule: the same groups, compared with the same validation gradient, but weighted otherwise.

- ``absolute``: ``|w|``. Does it matter that disagreement turns a gradient around?
- ``clipped``: ``max(w, 0)``. Or is it enough to leave out what disagrees?
- ``random``: ``max(n, 0)`` with n from a standard normal. Does agreement matter at all?
- ``cosine``: ``<g_v, g_i> / (|g_v| |g_i|)``. Do the lengths of gradients matter?
"""

import torch
from torch import Tensor

from deepbilevel.rule import cosines
from deepbilevel.rules.bilevel_settings import Control, Weighting


def control_of(weighting: Weighting, num_batches: int) -> Control | None:
    """Return what takes the place of the weights of a group of k mini-batches; nothing for the rule itself."""
    match weighting:
        case "agreement":
            return None
        case "absolute":
            return lambda weights, dots, sq_norms, norms, place: weights.abs()
        case "clipped":
            return lambda weights, dots, sq_norms, norms, place: weights.clamp(min=0)
        case "cosine":
            return lambda weights, dots, sq_norms, norms, place: cosines(dots, sq_norms.sqrt(), norms)
        case "random":
            return _RandomWeights(num_batches)


class _RandomWeights:
    """Draws the weights of all k mini-batches at once, so that no weight depends on which accumulator adds it."""

    def __init__(self, num_batches: int) -> None:
        self._num_batches = num_batches
        self._drawn: Tensor | None = None

    def __call__(self, weights: Tensor, dots: Tensor, sq_norms: Tensor, norms: Tensor, place: int) -> Tensor:
        if self._drawn is None:
            self._drawn = torch.randn(self._num_batches, *dots.shape).clamp(min=0).to(dots)
        return torch.where(torch.isfinite(dots), self._drawn[place], 0.0)
