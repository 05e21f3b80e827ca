"""The textbook version: all gradients as the rows of one float64 matrix, straight from the paper's equations.

It imports nothing of ours, and is slow and plain on purpose: what the fast version computes must equal this.
"""

from typing import NamedTuple

import numpy as np


class Solution(NamedTuple):
    gradient: np.ndarray  # [d]
    weights: np.ndarray  # [k - 1]
    raw_weights: np.ndarray  # [k - 1]


def solve(
    gradients: np.ndarray,
    *,
    lam: float,
    mu: float,
    exact: bool = False,
    normalize: bool = True,
    weighting: str = "agreement",
) -> Solution:
    """Take gradients [k, d], the first being the validation gradient, to the gradient of the step."""
    validation, training = gradients[0], gradients[1:]
    if exact:
        kernel = training @ training.T
        raw = np.linalg.lstsq(kernel / lam + mu * np.eye(len(training)), training @ validation, rcond=None)[0]
    else:
        raw = np.zeros(len(training))
        for i, gradient in enumerate(training):
            denominator = gradient @ gradient / lam + mu
            raw[i] = validation @ gradient / denominator if denominator > 0 else 0.0
    if weighting == "cosine":
        raw = np.array([cosine(validation, gradient) for gradient in training])
    else:
        raw = {"agreement": raw, "absolute": np.abs(raw), "clipped": np.maximum(raw, 0)}[weighting]
    total = np.abs(raw).sum()
    if total == 0:
        weights = np.zeros(len(training))
    elif normalize:
        weights = raw / total
    else:
        weights = raw
    return Solution(weights @ training, weights, raw)


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    lengths = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / lengths) if lengths > 0 else 0.0


def solve_k_fold(gradients: np.ndarray, **settings) -> Solution:
    """Take gradients [k, d] to the step in which each is weighed against the mean of the others, one at a time."""
    normalize = settings.pop("normalize", True)
    raw = np.zeros(len(gradients))
    for i, gradient in enumerate(gradients):
        others = np.delete(gradients, i, axis=0).mean(axis=0)
        raw[i] = solve(np.stack([others, gradient]), normalize=False, **settings).raw_weights[0]
    total = np.abs(raw).sum()
    weights = raw / total if normalize and total > 0 else raw
    return Solution(weights @ gradients, weights, raw)


def solve_per_layer(gradients: np.ndarray, layers: list[slice], **settings) -> Solution:
    """Treat every layer as a problem of its own; weights come out as [k - 1, layers]."""
    solutions = [solve(gradients[:, columns], **settings) for columns in layers]
    return Solution(
        np.concatenate([solution.gradient for solution in solutions]),
        np.stack([solution.weights for solution in solutions], axis=1),
        np.stack([solution.raw_weights for solution in solutions], axis=1),
    )


def cross_validate(
    groups: np.ndarray, blocks: list[np.ndarray], *, strength: float = 1.0, momentum: float = 0.0
) -> np.ndarray:
    """Take groups of gradients [k, d], or several [n, k, d], to the cross-validated gradient of the last one.

    Straight from its meaning: the inner products of all pairs of different mini-batches are the signal, those of each
    mini-batch with itself the power. Each block of columns shares one factor.
    """
    groups = groups.reshape(-1, *groups.shape[-2:])
    k = groups.shape[1]
    result = np.zeros(groups.shape[2])
    for columns in blocks:
        signal = power = 0.0
        for gradients in groups[:, :, columns]:
            products = gradients @ gradients.T
            between = (products.sum() - np.trace(products)) / (k * (k - 1))
            signal = momentum * signal + (1 - momentum) * between
            power = momentum * power + (1 - momentum) * np.trace(products) / k
        signal = np.clip(signal, 0, power)
        factor = signal / (signal + strength * (power - signal)) if signal > 0 else 0.0
        result[columns] = factor * groups[-1][:, columns].mean(axis=0)
    return result


def and_mask(gradients: np.ndarray, threshold: float) -> np.ndarray:
    """Take gradients [k, d] to their mean, where the mean sign is as far from zero as the threshold."""
    return np.where(np.abs(np.sign(gradients).mean(axis=0)) >= threshold, gradients.mean(axis=0), 0.0)


def median_of_three(gradients: np.ndarray) -> np.ndarray:
    """Take gradients [k, d] to the median of the means of every third."""
    return np.median([gradients[part::3].mean(axis=0) for part in range(3)], axis=0)


def gsnr(gradients: np.ndarray, tensors: list[np.ndarray], floor: float) -> np.ndarray:
    """Take gradients [k, d], none of which is the same for all k, to their mean weighted by its ratio to the noise."""
    mean = gradients.mean(axis=0)
    ratios = mean**2 / gradients.var(axis=0)
    for columns in tensors:
        ratios[columns] /= ratios[columns].mean()
    return np.clip(ratios, floor, 1) * mean


def agreement_filter(gradients: np.ndarray, max_cosine_distance: float) -> np.ndarray:
    """Take gradients [k, d] to the running average of those that agree with it."""
    average, agreed = gradients[0], 0
    for gradient in gradients[1:]:
        if 1 - cosine(average, gradient) <= max_cosine_distance:
            average, agreed = (average + gradient) / 2, agreed + 1
    return average if agreed else np.zeros_like(average)
