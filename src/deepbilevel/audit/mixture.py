"""Two populations in one list of numbers: the low ones are wrong labels, the high ones right ones.

This module knows scores and groups of them, not where they come from. Scores are counted in bins, so the order of
samples does not matter, not even to the last bit, and the work does not grow with their number.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_NUM_BINS = 256
_FEWEST = 20  # scores; among fewer, two clusters are easily chance
_STARTS = (0.05, 0.15, 0.3, 0.5, 0.7)  # shares of wrong labels
_PRIOR = 100.0  # a group's own fit and that of all weigh the same when it has so many scores
_NUM_RESAMPLED = 200
_LOG_NORM = 0.5 * float(np.log(2 * np.pi))
_APART = 2.0  # Ashman's D; in simulations, two components fitted to one skewed population stay below 1.7


@dataclass(frozen=True)
class _Components:
    """Two normal distributions per row, arrays ``[rows, 2]``; the first is that of the wrong labels."""

    shares: Floats
    means: Floats
    stds: Floats

    def __getitem__(self, rows: Ints | slice) -> "_Components":
        return _Components(*(each[rows] for each in self.arrays))

    @property
    def arrays(self) -> tuple[Floats, Floats, Floats]:
        """Shares, means and standard deviations."""
        return self.shares, self.means, self.stds

    def log_densities(self, scores: Floats) -> Floats:
        """Return ``[rows, 2, scores]``, each density times its share."""
        distances = (scores - self.means[..., None]) / self.stds[..., None]
        return -0.5 * distances**2 + np.log(self.shares / self.stds)[..., None] - _LOG_NORM

    @property
    def distances(self) -> Floats:
        """How far the means are apart, in standard deviations: Ashman's D, ``[rows]``."""
        return (self.means[:, 1] - self.means[:, 0]) / np.sqrt((self.stds**2).mean(axis=1))


@dataclass(frozen=True)
class NoiseRate:
    """The estimated share of wrong labels.

    >>> NoiseRate(0.21, 0.18, 0.24).told_apart, NoiseRate().told_apart
    (True, False)

    Attributes:
        estimate: NaN where right and wrong labels cannot be told apart.
        low: lower end of a 95 % interval; it accounts for the sample, not for a wrong shape of the two distributions.
        high: upper end.
    """

    estimate: float = float("nan")
    low: float = 0.0
    high: float = 1.0

    @property
    def told_apart(self) -> bool:
        """Whether the scores show two populations at all."""
        return not np.isnan(self.estimate)


def judge_scores(
    scores: Floats, groups: Ints, num_groups: int, *, wrong_std: float | None = None
) -> tuple[Floats, NoiseRate]:
    """Return the probability that each label is wrong, and the share of wrong ones.

    Two normal distributions are fitted to all scores. Each group then gets its own, which a prior ties to those of
    all: a large group has its own, a small one hardly differs. Within a group a lower score is never less suspicious.
    NaN scores get NaN; so do all, if the scores show one population, or two that overlap too much.

    Where the two overlap, their widths decide how many are wrong, and the scores hardly tell them. If the width of the
    wrong ones' is known from elsewhere, both fits count, with it and without: both must show two populations, and the
    interval covers both.

    >>> scores = np.r_[np.linspace(-5, -3, 50), np.linspace(3, 5, 150)]
    >>> p_wrong, rate = judge_scores(scores, np.zeros(200, dtype=np.int64), 1)
    >>> round(rate.estimate, 3), int((p_wrong > 0.5).sum())
    (0.25, 50)

    Args:
        scores: low ones are suspicious.
        groups: which group each belongs to, such as its class.
        num_groups: how many groups there are.
        wrong_std: standard deviation of the scores of wrong labels, if something is known about it.
    """
    p_wrong = np.full(scores.shape, np.nan)
    known = np.isfinite(scores)
    histograms = _Histograms.of(scores[known], groups[known], num_groups)
    if histograms is None:
        return p_wrong, NoiseRate()
    models = [_fit(histograms, std) for std in ((None, wrong_std) if wrong_std else (None,))]
    if not all(_are_apart(model, histograms) for model in models):
        return p_wrong, NoiseRate()
    judged = [_p_wrong(each.by_group[groups[known]], scores[known]) for each in models]
    p_wrong[known] = np.mean(judged, axis=0)
    rates = np.array([np.sort(each).mean() for each in judged])  # the same in any order of samples, to the last bit
    deviations = np.array([_deviations(each, histograms) for each in models])
    low, high = np.clip([(rates + deviations[:, 0]).min(), (rates + deviations[:, 1]).max()], 0, 1)
    return p_wrong, NoiseRate(float(rates.mean()), float(low), float(high))


@dataclass(frozen=True)
class _Histograms:
    """Scores counted in the same bins, by group.

    Attributes:
        counts: ``[groups, bins]``.
        centres: the score in the middle of each bin.
    """

    counts: Floats
    centres: Floats

    @classmethod
    def of(cls, scores: Floats, groups: Ints, num_groups: int) -> "_Histograms | None":
        """Count scores; nothing if there are too few of them, or all are the same."""
        if len(scores) < _FEWEST:
            return None
        # A few extreme scores must not decide; they are judged, but not counted. Low ones may be rare wrong labels.
        first, last = np.quantile(scores, [0.01, 0.99])
        low, high = max(scores.min(), 3 * first - 2 * last), min(scores.max(), last + (last - first) / 4)
        if not high > low:
            return None
        counted = (scores >= low) & (scores <= high)
        bins = np.minimum((scores[counted] - low) / (high - low) * _NUM_BINS, _NUM_BINS - 1).astype(np.int64)
        counts = np.bincount(groups[counted] * _NUM_BINS + bins, minlength=num_groups * _NUM_BINS)
        centres = low + (np.arange(_NUM_BINS) + 0.5) * (high - low) / _NUM_BINS
        return cls(counts.reshape(num_groups, _NUM_BINS).astype(np.float64), centres)

    @property
    def pooled(self) -> Floats:
        """Counts of all groups together, ``[1, bins]``."""
        return self.counts.sum(axis=0, keepdims=True)


@dataclass(frozen=True)
class _Model:
    pooled: _Components  # of all scores, one row
    by_group: _Components
    log_likelihood: float  # of all scores
    wrong_std: float | None


def _fit(histograms: _Histograms, wrong_std: float | None) -> _Model:
    counts, centres = histograms.pooled, histograms.centres
    total, shares = counts.sum(), np.array([[share, 1 - share] for share in _STARTS])
    # Each component starts at the median of its part.
    medians = np.array([[share / 2, (1 + share) / 2] for share in _STARTS])
    means = centres[np.searchsorted(counts[0].cumsum(), medians * total)]
    starts = _Components(shares, means, np.full(shares.shape, _moments(histograms)[1] / 2))
    fitted, log_likelihoods = _improve(starts, counts, centres, wrong_std, num_rounds=300)
    best = np.argmax(log_likelihoods, keepdims=True)
    pooled = fitted[best]
    if wrong_std is None and pooled.means[0, 0] > pooled.means[0, 1]:
        pooled = _Components(*(each[:, ::-1] for each in (pooled.shares, pooled.means, pooled.stds)))
    every = np.zeros(len(histograms.counts), dtype=np.int64)
    own, _ = _improve(pooled[every], histograms.counts, centres, wrong_std, prior=pooled)
    is_own = (own.distances >= _APART)[:, None]
    pairs = zip(own.arrays, pooled.arrays, strict=True)
    return _Model(
        pooled, _Components(*(np.where(is_own, *pair) for pair in pairs)), float(log_likelihoods[best[0]]), wrong_std
    )


def _are_apart(model: _Model, histograms: _Histograms) -> bool:
    """Whether two components describe the scores better than one, and do not overlap too much."""
    mean, std = _moments(histograms)
    counts = histograms.pooled[0]
    single = counts @ (-0.5 * ((histograms.centres - mean) / std) ** 2 - np.log(std) - _LOG_NORM)
    # Bayesian information criterion: three more parameters must pay.
    is_better = 2 * (model.log_likelihood - single) > 3 * np.log(counts.sum())
    return bool(is_better and model.pooled.distances[0] >= _APART)


def _moments(histograms: _Histograms) -> tuple[float, float]:
    shares = histograms.pooled[0] / histograms.pooled.sum()
    mean = shares @ histograms.centres
    return float(mean), float(np.sqrt(shares @ (histograms.centres - mean) ** 2))


def _improve(
    components: _Components,
    counts: Floats,
    centres: Floats,
    wrong_std: float | None,
    *,
    prior: _Components | None = None,
    num_rounds: int = 100,
) -> tuple[_Components, Floats]:
    """Run expectation maximisation on all rows at once; return the components and their log-likelihoods.

    A component may not be narrower than a fiftieth of the scores' range: it would settle on a single score.
    """
    narrowest = (centres[-1] - centres[0]) / 50
    strength = 0.0 if prior is None else _PRIOR
    log_likelihoods = np.zeros(len(components.shares))
    for _ in range(num_rounds):
        before = components if prior is None else prior
        log_densities = components.log_densities(centres)
        log_totals = np.logaddexp(log_densities[:, 0], log_densities[:, 1])
        log_likelihoods = (counts * log_totals).sum(axis=-1)
        parts = counts[:, None] * np.exp(log_densities - log_totals[:, None])
        sizes = np.maximum(parts.sum(axis=-1), 1e-9)
        shares = (sizes + strength * before.shares) / (sizes.sum(axis=1, keepdims=True) + strength)
        means = (parts @ centres + strength * before.means) / (sizes + strength)
        squares = (parts * (centres - means[..., None]) ** 2).sum(axis=-1)
        drawn_in = strength * (before.stds**2 + (means - before.means) ** 2)
        stds = np.maximum(np.sqrt((squares + drawn_in) / (sizes + strength)), narrowest)
        if wrong_std is not None:
            stds[:, 0] = wrong_std
        components = _Components(shares, means, stds)
    return components, log_likelihoods


def _p_wrong(components: _Components, scores: Floats) -> Floats:
    """Return the probability of the first component, one row of components per score.

    With unequal variances the log-odds are a parabola, so the far tail of the wider component would win on both sides.
    At both means the log-odds fall with the score. Their derivative is linear, so the vertex lies outside the interval
    between the means, and scores beyond the vertex are taken for the vertex.
    """
    precisions = components.stds**-2.0
    pulls = components.means * precisions
    bend = precisions[:, 1] - precisions[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = (pulls[:, 1] - pulls[:, 0]) / bend
    scores = np.where(bend > 0, np.minimum(scores, vertex), np.where(bend < 0, np.maximum(scores, vertex), scores))
    wrong, right = np.moveaxis(components.log_densities(scores[:, None, None])[..., 0], -1, 0)
    return np.exp(wrong - np.logaddexp(wrong, right))


def _deviations(model: _Model, histograms: _Histograms) -> Floats:
    """Return how far the share of wrong labels varies in resampled scores, 95 % of them; always the same ones."""
    total = int(histograms.pooled.sum())
    random = np.random.RandomState(0)
    resampled = random.multinomial(total, histograms.pooled[0] / total, size=_NUM_RESAMPLED).astype(np.float64)
    start = model.pooled[np.zeros(_NUM_RESAMPLED, dtype=np.int64)]
    components, _ = _improve(start, resampled, histograms.centres, model.wrong_std)
    return np.quantile(components.shares[:, 0] - model.pooled.shares[0, 0], [0.025, 0.975])
