"""Curves of samples: the last visit of each part of training, however the visits were cut into calls and processes."""

import numpy as np
import pytest
import torch

from deepbilevel.audit import LabelAudit
from tests.audit.reference import visits_of_epochs

STEP = 1 / 254
LABELS = {
    "single": np.random.RandomState(0).randint(0, 3, 20),
    "several": np.random.RandomState(0).randint(0, 2, (20, 3)),
}


def lines_of(label, logits):
    """Return what a curve shows of one visit, as a textbook would write it."""
    if np.ndim(label):
        return logits.sigmoid().numpy()
    probabilities = logits.softmax(dim=0).numpy()
    return [probabilities[label], np.delete(probabilities, label).max()]


def textbook(labels, calls, num_points=32):
    """Return the curves of all samples, from a list of all visits."""
    visits = [(index, row) for indices, logits in calls for index, row in zip(indices.tolist(), logits, strict=True)]
    width = 1
    while width * num_points < len(visits):
        width *= 2
    curves = np.full((len(labels), -(-len(visits) // width), 3 if labels.ndim == 2 else 2), np.nan)
    for time, (index, row) in enumerate(visits):
        if torch.isfinite(row).all():
            curves[index, time // width] = lines_of(labels[index], row)
    return curves


def observed(labels, calls, **settings):
    audit = LabelAudit(labels, num_classes=3, **settings)
    for indices, logits in calls:
        audit.observe(indices, logits)
    return audit


def calls_of(epochs, batch_size=8):
    return [(indices, logits) for indices, logits, _ in visits_of_epochs(20, 3, epochs, batch_size=batch_size)]


@pytest.mark.parametrize("epochs", [1, 2, 5, 13, 60])
@pytest.mark.parametrize("kind", LABELS)
def test_curves_are_those_of_the_textbook(kind, epochs):
    labels, calls = LABELS[kind], calls_of(epochs)
    calls[1][1][2] = torch.nan
    found = observed(labels, calls).curves()
    np.testing.assert_allclose(found, textbook(labels, calls), atol=STEP / 2 + 1e-6)
    assert 16 < found.shape[1] <= 32
    assert found.dtype == np.float32


def test_how_visits_are_cut_into_calls_does_not_matter():
    calls = calls_of(9)
    indices, logits = (torch.cat(each) for each in zip(*calls, strict=True))
    at_once = observed(LABELS["single"], [(indices, logits)])
    assert np.array_equal(at_once.curves(), observed(LABELS["single"], calls).curves(), equal_nan=True)


def test_chosen_samples_and_none_visited_yet():
    audit = observed(LABELS["single"], calls_of(3))
    assert np.array_equal(audit.curves([3, 0]), audit.curves()[[3, 0]], equal_nan=True)
    assert LabelAudit([0, 1], num_classes=2).curves().shape == (2, 0, 2)
    with pytest.raises(IndexError, match="got 20"):
        audit.curves([20])


def test_evaluation_mode_of_torch_leaves_curves_that_can_go_on():
    audit = LabelAudit([0, 1], num_classes=2)
    for _ in range(40):
        with torch.inference_mode():
            audit.observe([0, 1], torch.zeros(2, 2))
        audit.observe([0, 1], torch.zeros(2, 2))
    assert np.nanmax(np.abs(audit.curves() - 0.5)) == 0


def test_parts_that_ran_side_by_side_make_one_curve():
    calls = calls_of(epochs=12, batch_size=10)  # two per epoch, one for each part
    parts = [observed(LABELS["single"], calls[part::2]) for part in range(2)]
    merged, sampled = parts[0].merged(parts[1]).curves(), np.stack([part.curves() for part in parts])
    is_known = ~np.isnan(sampled)
    mean = np.where(is_known, sampled, 0).sum(axis=0) / np.maximum(is_known.sum(axis=0), 1)
    assert np.array_equal(np.isnan(merged), ~is_known.any(axis=0))
    np.testing.assert_allclose(np.nan_to_num(merged), mean, atol=STEP / 2 + 1e-6)


def test_parts_of_different_length_meet_on_the_longer_ones_time():
    long, short = observed(LABELS["several"], calls_of(12)), observed(LABELS["several"], calls_of(1))
    merged = short.merged(long).curves()
    assert merged.shape == long.curves().shape
    beyond = slice(3, None)  # twenty visits are over by then
    assert np.array_equal(merged[:, beyond], long.curves()[:, beyond], equal_nan=True)
