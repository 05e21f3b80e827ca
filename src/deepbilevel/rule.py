"""The paper's rule: statistics of gradients in, weights of mini-batches out.

This module knows numbers only. It never sees a gradient or a parameter: who wants to know *what* bilevel learning
does reads this file, who wants to know *how* it is done in the memory of a few gradients goes on to ``gradients.py``
and ``step.py``.
"""

from numbers import Real
from typing import Literal, get_args

import torch
from torch import Tensor

from deepbilevel.choice import choose

Control = Literal["agreement", "absolute", "clipped", "random"]
Weighting = Literal["agreement", "absolute", "clipped", "random", "cosine"]
Validation = Literal["first", "k-fold", "momentum"]


def bilevel_weights(dots: Tensor, sq_norms: Tensor, *, lam: float = 1.0, mu: float = 0.01) -> Tensor:
    """Weigh each training mini-batch by how well its gradient agrees with the validation gradient.

    ``w_i = <g_v, g_i> / (|g_i|^2 / lam + mu)``

    The weights are raw: they may be negative, and stay so, and they are not normalised
    (see :func:`l1_divisor`). A statistic that is not finite, and a denominator that vanishes, give weight zero.

    Args:
        dots: ``<g_v, g_i>``, one entry per training mini-batch; any shape.
        sq_norms: ``|g_i|^2``, of the same shape.
        lam: how far the validation loss trusts its linear approximation (the paper's lambda-hat), positive.
        mu: how strongly small gradients are kept from getting large weights (mu-hat), not negative.

    >>> bilevel_weights(torch.tensor([2.0, 0.0, -1.0]), torch.tensor([1.0, 4.0, 0.0]), lam=1.0, mu=1.0)
    tensor([ 1.,  0., -1.])
    """
    check_rule(lam=lam, mu=mu)
    # With mu = 0 a gradient of zero has a denominator of zero: nothing agrees with it, nothing is learned from it.
    return torch.nan_to_num(dots / (sq_norms / lam + mu), nan=0.0, posinf=0.0, neginf=0.0)


def exact_weights(gram: Tensor, dots: Tensor, *, lam: float = 1.0, mu: float = 0.01) -> Tensor:
    """Solve the paper's linear system instead of ignoring what training gradients have in common.

    ``(K / lam + mu I) w = b`` with ``K_ij = <g_i, g_j>`` and ``b_i = <g_v, g_i>``, in float64. Where gradients
    are orthogonal this equals :func:`bilevel_weights`; where ``mu = 0`` leaves the system singular, the solution
    of least norm is taken. A mini-batch whose statistics are not finite gets weight zero and takes no part.

    Args:
        gram: ``K``, shape ``[..., n, n]``.
        dots: ``b``, shape ``[..., n]``.
        lam: as in :func:`bilevel_weights`.
        mu: as in :func:`bilevel_weights`.

    >>> exact_weights(torch.tensor([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([1.0, 0.5]), lam=1.0, mu=0.0)
    tensor([1., 0.])
    """
    check_rule(lam=lam, mu=mu)
    # The system has n = k - 1 unknowns, so it is solved on the CPU: not every device has float64.
    big_gram, big_dots = (statistic.to("cpu", torch.float64) for statistic in (gram, dots))
    usable = torch.isfinite(big_gram.diagonal(dim1=-2, dim2=-1)) & torch.isfinite(big_dots)
    big_gram = torch.where(usable[..., :, None] & usable[..., None, :], big_gram, 0.0)
    big_dots = torch.where(usable, big_dots, 0.0)
    system = big_gram / lam + mu * torch.eye(dots.shape[-1], dtype=torch.float64)
    solution = (torch.linalg.pinv(system, hermitian=True) @ big_dots[..., None])[..., 0]
    return torch.where(usable, solution, 0.0).to(dots)


def cosines(dots: Tensor, norms: Tensor, validation_norms: Tensor) -> Tensor:
    """Return ``<g_v, g_i> / (|g_v| |g_i|)``; zero where a gradient has no direction or is not finite.

    >>> cosines(torch.tensor([6.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor(3.0))
    tensor([1., 0.])
    """
    lengths = norms * validation_norms
    return torch.where(torch.isfinite(dots) & torch.isfinite(lengths) & (lengths > 0), dots / lengths, 0.0)


def compare_with_the_others(gram: Tensor, finite: Tensor) -> tuple[Tensor, Tensor]:
    """Let every mini-batch be validated by the mean of the others, ``v_i = mean_{j != i} g_j``.

    Return ``<v_i, g_i>`` and ``|v_i|``, each ``[..., n]``. A mini-batch that is not finite is part of no mean, and
    compared with nothing: NaN. So is a mini-batch that is left alone.

    Args:
        gram: ``<g_i, g_j>``, shape ``[..., n, n]``.
        finite: which mini-batches are, shape ``[n]``.

    >>> compare_with_the_others(torch.tensor([[4.0, 2.0], [2.0, 9.0]]), torch.tensor([True, True]))
    (tensor([2., 2.]), tensor([3., 2.]))
    """
    gram = torch.where(finite[:, None] & finite, gram, 0.0)
    others = 1 - torch.eye(len(finite), dtype=gram.dtype, device=gram.device)  # row i: all but i
    count = torch.where(finite & (finite.sum() > 1), finite.sum() - 1, torch.nan).to(gram.dtype)
    sums = others @ gram  # row i, column j: <sum of all but i, g_j>
    sq_norms = (sums * others).sum(-1)
    return (gram * others).sum(-1) / count, sq_norms.clamp(min=0).sqrt() / count


def reweigh(weights: Tensor, dots: Tensor, weighting: Control) -> Tensor:
    """Return raw weights as the rule gives them, or what a control puts in their place, entry by entry.

    - ``agreement``: the rule itself, ``w``.
    - ``absolute``: ``|w|``. Does it matter that disagreement turns a gradient around?
    - ``clipped``: ``max(w, 0)``. Or is it enough to leave out what disagrees?
    - ``random``: ``max(n, 0)`` with ``n`` from a standard normal. Does agreement matter at all?

    Args:
        weights: from :func:`bilevel_weights` or :func:`exact_weights`.
        dots: ``<g_v, g_i>``, of the same shape; where they are not finite, the weight is zero even if drawn at random.
        weighting: which of the four.

    >>> reweigh(torch.tensor([2.0, -1.0]), torch.tensor([4.0, -1.0]), "absolute")
    tensor([2., 1.])
    """
    match weighting:
        case "agreement":
            return weights
        case "absolute":
            return weights.abs()
        case "clipped":
            return weights.clamp(min=0)
        case "random":
            return torch.where(torch.isfinite(dots), torch.randn_like(weights).clamp(min=0), 0.0)


def l1_divisor(weights: Tensor) -> Tensor:
    """Return what to divide by so that weights have unit L1 norm over the first dimension, mini-batches.

    ``W = sum_i |w_i|``; infinite where ``W`` is zero or not finite, because dividing by infinity makes
    the whole step zero there, which is what should happen.

    >>> weights = torch.tensor([3.0, -1.0])
    >>> weights / l1_divisor(weights)
    tensor([ 0.7500, -0.2500])
    >>> torch.zeros(2) / l1_divisor(torch.zeros(2))
    tensor([0., 0.])
    """
    total = weights.abs().sum(dim=0)
    return torch.where(torch.isfinite(total) & (total > 0), total, torch.inf)


def check_choices(*, weighting: str, validation: str, validation_momentum: float, solver: str) -> None:
    """Refuse a weighting or validation that does not exist, and combinations that would work for nothing."""
    choose("weighting", weighting, get_args(Weighting))
    choose("validation", validation, get_args(Validation))
    if isinstance(validation_momentum, bool) or not isinstance(validation_momentum, Real):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"validation_momentum must be a number, got {validation_momentum!r}")
    if not 0 <= validation_momentum < 1:
        raise ValueError(
            f"validation_momentum must lie between 0 and 1, and below 1, got {validation_momentum!r}; 0 forgets all "
            "groups but the last, 0.9 remembers about ten"
        )
    if weighting == "random" and solver == "exact":
        raise ValueError(
            "weighting 'random' does not look at gradients, so solver 'exact' would hold them all for nothing; "
            "take solver 'diagonal'"
        )
    if weighting == "random" and validation != "first":
        raise ValueError(
            f"weighting 'random' does not look at gradients, so validation {validation!r} would hold them for nothing; "
            "take validation 'first'"
        )
    if weighting == "cosine" and solver == "exact":
        raise ValueError(
            "weighting 'cosine' looks at each mini-batch alone, so what solver 'exact' finds out about pairs would not "
            "count; take solver 'diagonal'"
        )
    if validation == "k-fold" and solver == "exact":
        raise ValueError(
            "validation 'k-fold' gives every mini-batch a validation gradient of its own, but the system of solver "
            "'exact' has one for all of them; take solver 'diagonal'"
        )


def check_rule(*, lam: float, mu: float) -> None:
    """Refuse settings for which the rule has no meaning."""
    for name, value in (("lam", lam), ("mu", mu)):
        if not isinstance(value, Real):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 < lam < float("inf"):
        raise ValueError(f"lam must be positive and finite, got {lam!r}; the paper uses lam=1.0")
    if not 0 <= mu < float("inf"):
        raise ValueError(f"mu must be finite and not negative, got {mu!r}; the paper uses mu=0.01")
