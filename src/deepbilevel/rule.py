"""The rule of Deep Bilevel Learning (Jenni & Favaro, ECCV 2018) in numbers: statistics of gradients in, weights out.

This module never sees a gradient or a parameter. Read it first, then ``rules/bilevel.py`` (the same equations on real
gradients, one mini-batch at a time) and ``step.py`` (the training loop around them).
"""

from math import inf

import torch
from torch import Tensor

from deepbilevel.checks import check_real


def bilevel_weights(dots: Tensor, sq_norms: Tensor, *, lam: float = 1.0, mu: float = 0.01) -> Tensor:
    """Weight each training mini-batch by the agreement of its gradient with the validation gradient.

    ``w_i = <g_v, g_i> / (|g_i|^2 / lam + mu)``

    The weights are raw: they may be negative and they are not normalised (see :func:`l1_divisor`). A statistic that is
    not finite and a denominator of zero give weight zero. As ``w_i = lam <g_v, g_i> / (|g_i|^2 + lam mu)``, only the
    product ``lam mu`` matters once weights are normalised.

    Args:
        dots: ``<g_v, g_i>``, one entry per training mini-batch; any shape.
        sq_norms: ``|g_i|^2``, of the same shape.
        lam: how far the linear approximation of the validation loss is trusted (the paper's lambda-hat), positive.
        mu: how strongly small gradients are kept from getting large weights (mu-hat), not negative.

    >>> bilevel_weights(torch.tensor([2.0, 0.0, -1.0]), torch.tensor([1.0, 4.0, 1.0]), lam=1.0, mu=1.0)
    tensor([ 1.0000,  0.0000, -0.5000])
    """
    check_regularisation(lam=lam, mu=mu)
    # With mu = 0 a gradient of zero, or nearly so, makes NaN or infinity: it says nothing, and gets weight zero.
    return torch.nan_to_num(dots / (sq_norms / lam + mu), nan=0.0, posinf=0.0, neginf=0.0)


def cosines(dots: Tensor, norms: Tensor, validation_norms: Tensor) -> Tensor:
    """Return ``<g_v, g_i> / (|g_v| |g_i|)``; zero where a gradient is zero or not finite.

    >>> cosines(torch.tensor([6.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor(3.0))
    tensor([1., 0.])
    """
    lengths = norms * validation_norms
    return torch.where(torch.isfinite(dots) & torch.isfinite(lengths) & (lengths > 0), dots / lengths, 0.0)


def l1_divisor(weights: Tensor) -> Tensor:
    """Return the divisor that gives weights unit L1 norm over the first dimension, the mini-batches.

    ``W = sum_i |w_i|``, or infinity where that is zero or not finite, so that the resulting gradient is zero.

    >>> weights = torch.tensor([3.0, -1.0])
    >>> weights / l1_divisor(weights)
    tensor([ 0.7500, -0.2500])
    >>> torch.zeros(2) / l1_divisor(torch.zeros(2))
    tensor([0., 0.])
    """
    total = weights.abs().sum(dim=0)
    return torch.where(torch.isfinite(total) & (total > 0), total, inf)


def check_regularisation(*, lam: float, mu: float) -> None:
    """Refuse settings for which the equation has no meaning."""
    check_real("lam", lam)
    check_real("mu", mu)
    if not 0 < lam < inf:
        raise ValueError(f"lam must be positive and finite, got {lam!r}; the paper uses lam=1.0")
    if not 0 <= mu < inf:
        raise ValueError(f"mu must be finite and not negative, got {mu!r}; the paper uses mu=0.01")
