"""Scores of labels, and the scale on which right and wrong ones look normal. Low scores are suspicious."""

from typing import Literal, get_args

import numpy as np
import torch

from deepbilevel.audit.mixture import Floats
from deepbilevel.audit.observations import Observations
from deepbilevel.checks import choose

Score = Literal["contrast", "probability", "margin", "hit_rate", "agreement"]

_ENOUGH = 10**6  # numbers for a median
_LEARNED = 0.7  # half is chance


def score_labels(seen: Observations, name: Score) -> Floats:
    """Return a score of every label; NaN where nothing is known."""
    choose("score", name, get_args(Score))
    if name in ("contrast", "probability"):
        means = seen.mean_probabilities().cpu().numpy().astype(np.float64)
        if name == "probability":
            return _of_labels(seen, means, 1 - means)
        evidence = _evidence(means, name, multi_label=seen.multi_label)
        return _of_labels(seen, evidence, -evidence)
    visits = seen["agreement_visits" if name == "agreement" else "visits"].double()
    visits = visits[:, None] if seen.multi_label else visits
    scores = seen["hits"] / visits if name == "hit_rate" else seen[name].double()
    return torch.where(visits > 0, scores, torch.nan).cpu().numpy()


def to_normal(seen: Observations, name: Score, scores: Floats) -> Floats:
    """Return scores on a scale without bounds: log-odds of probabilities and rates."""
    if name == "probability":
        return _log_odds(scores)
    if name == "hit_rate":
        visits = seen["visits"].cpu().numpy().reshape(-1, *(1,) * (scores.ndim - 1))
        return np.log((scores * visits + 0.5) / ((1 - scores) * visits + 0.5))
    return scores


def std_of_wrong(seen: Observations, name: Score, value: int = 1) -> float | None:
    """Return the standard deviation of the scores of wrong labels, where it can be known without knowing them.

    A wrong label is a class that a sample does not belong to. How such classes score shows at all those it was not
    given. Training on a wrong label raises its score, but hardly widens the distribution.

    Args:
        seen: what was observed.
        name: of the score.
        value: for several labels per sample, 1 for labels that are given, 0 for those that are not.
    """
    if name not in ("contrast", "probability"):
        return None
    every = slice(None, None, max(1, len(seen.labels) * seen.num_classes // _ENOUGH))
    labels = seen.labels[every].cpu().numpy()
    means = seen.mean_probabilities()[every].cpu().numpy().astype(np.float64)
    evidence = _evidence(means, name, multi_label=seen.multi_label)
    others = labels != value if seen.multi_label else np.arange(seen.num_classes) != labels[:, None]
    null = evidence[others & np.isfinite(evidence)]
    # By the median absolute deviation: some of these classes are the right ones.
    return 1.4826 * float(np.median(np.abs(null - np.median(null)))) if len(null) else None


def has_learned(seen: Observations) -> bool:
    """Whether a network of several labels knows its classes: samples that have one mostly score higher than others.

    Before it does, probabilities differ between classes only, and two populations of classes look like right and wrong
    labels.
    """
    means = seen.mean_probabilities().cpu().numpy().astype(np.float64)
    rows = np.isfinite(means).all(axis=1)
    labels, means = seen.labels.cpu().numpy()[rows], means[rows]
    ranks = means.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    given = labels.sum(axis=0)
    pairs = given * (len(labels) - given)
    # Mann-Whitney: in how many pairs of a sample with the class and one without it does the former score higher?
    higher = (ranks * labels).sum(axis=0) - given * (given - 1) / 2
    return pairs.sum() > 0 and float(higher.sum() / pairs.sum()) >= _LEARNED


def _evidence(means: Floats, name: Score, *, multi_label: bool) -> Floats:
    """Return what the mean probabilities say for every class, ``[samples, classes]``."""
    odds = _log_odds(means)
    if name == "probability" or multi_label:
        return odds
    ordered = np.partition(odds, -2, axis=1)
    is_best = np.arange(odds.shape[1]) == odds.argmax(axis=1)[:, None]
    return odds - 0.5 * np.where(is_best, ordered[:, -2:-1], ordered[:, -1:])


def _of_labels(seen: Observations, given: Floats, absent: Floats) -> Floats:
    labels = seen.labels.cpu().numpy()
    return np.where(labels, given, absent) if seen.multi_label else given[np.arange(len(labels)), labels]


def _log_odds(probabilities: Floats) -> Floats:
    return np.log((probabilities + 1e-3) / (1 - probabilities + 1e-3))
