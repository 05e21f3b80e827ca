"""The cross-validated gradient: equal to its textbook version, and what it claims about agreement and noise."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import CrossValidated, gradients
from tests.reference import cross_validate

NAN, INF = float("nan"), float("inf")
BLOCKS = ["parameter", "filter", "layer", "model"]


class TwoLayers(nn.Module):
    """Two linear layers that only hold parameters: their gradients are whatever a test wants them to be."""

    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.first = nn.Linear(3, 2, dtype=dtype)
        self.second = nn.Linear(2, 1, bias=False, dtype=dtype)


# The columns of first.weight [2, 3], first.bias [2] and second.weight [1, 2], flattened one after another.
COLUMNS = {
    "parameter": [np.array([i]) for i in range(10)],
    "filter": [np.arange(0, 3), np.arange(3, 6), np.array([6]), np.array([7]), np.arange(8, 10)],
    "layer": [np.arange(0, 8), np.arange(8, 10)],
    "model": [np.arange(10)],
}


def step(rows, *, dtype=torch.float64, **settings):
    """Hand one group of given gradients [k, 10] to the rule; return the gradient it fills, flat, and its report."""
    model = TwoLayers(dtype)
    rule = CrossValidated(model, num_batches=len(rows), **settings)
    for row in torch.as_tensor(np.asarray(rows), dtype=dtype):
        parts = row.split([p.numel() for p in model.parameters()])
        loss = sum((p.flatten() * part).sum() for p, part in zip(model.parameters(), parts, strict=True))
        rule.backward(loss)
    report = rule.fill()
    return torch.cat([p.grad.flatten() for p in model.parameters()]), report


def random_rows(k, seed=0):
    return np.random.RandomState(seed).randn(k, 10) + np.linspace(-2, 2, 10)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("k", [2, 3, 8])
def test_it_equals_the_textbook_version(block, k):
    filled, _ = step(random_rows(k), block=block)
    np.testing.assert_allclose(filled, cross_validate(random_rows(k), COLUMNS[block]), rtol=1e-12, atol=1e-14)


@given(st.integers(2, 6), st.integers(0, 2**31), st.sampled_from(BLOCKS))
def test_it_equals_the_textbook_version_for_any_gradients(k, seed, block):
    rows = random_rows(k, seed) * 10.0 ** np.random.RandomState(seed).randint(-3, 4, size=10)
    filled, _ = step(rows, block=block)
    expected = cross_validate(rows, COLUMNS[block])
    np.testing.assert_allclose(filled, expected, rtol=1e-9, atol=1e-12 * np.abs(rows).max())


@pytest.mark.parametrize("block", BLOCKS)
def test_where_all_agree_nothing_is_taken_away(block):
    row = np.linspace(-1, 1, 10)
    filled, report = step([row] * 4, block=block)
    np.testing.assert_allclose(filled, row, rtol=1e-12)
    assert report.shared.item() == pytest.approx(1.0)
    assert report.applied


def test_where_mini_batches_are_independent_the_unclamped_factor_is_zero_on_average():
    """Half of the factors are clamped at zero; the other half must mirror them, or noise would be learned or lost."""
    rows = np.random.RandomState(0).randn(8, 200_000)
    s1, s2 = rows.sum(axis=0), (rows**2).sum(axis=0)
    unclamped = (s1**2 - s2) / (7 * s2)
    assert abs(unclamped.mean()) < 0.002
    parameter = nn.Parameter(torch.zeros(200_000, dtype=torch.float64))
    rule = CrossValidated([parameter], num_batches=8)
    for row in rows:
        rule.backward((parameter * torch.from_numpy(row)).sum())
    report = rule.fill()
    assert report.shared.item() == pytest.approx(np.clip(unclamped, 0, 1).mean(), rel=1e-6)
    plain, kept = np.abs(s1 / 8).mean(), parameter.grad.abs().mean().item()
    assert kept < 0.25 * plain


@pytest.mark.parametrize("block", BLOCKS)
@given(scale=st.floats(1e-6, 1e6))
def test_scaling_all_gradients_scales_the_result_alone(block, scale):
    rows = random_rows(5)
    torch.testing.assert_close(
        step(rows * scale, block=block)[0], step(rows, block=block)[0] * scale, rtol=1e-9, atol=0
    )


@pytest.mark.parametrize("block", BLOCKS)
@given(st.permutations(range(5)))
def test_the_order_of_mini_batches_does_not_matter(block, order):
    rows = random_rows(5)
    torch.testing.assert_close(step(rows[order], block=block)[0], step(rows, block=block)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("place", [0, 2])
def test_a_mini_batch_that_is_not_finite_is_left_out(block, bad, place, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    rows = random_rows(4)
    broken = np.insert(rows, place, rows[0], axis=0)
    broken[place, 5] = bad
    filled, report = step(broken, block=block)
    np.testing.assert_allclose(filled, cross_validate(rows, COLUMNS[block]), rtol=1e-12, atol=1e-14)
    assert report.skipped == (place,)
    assert report.weights.tolist() == [0.25 if i != place else 0.0 for i in range(5)]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("num_sound", [0, 1])
def test_with_fewer_than_two_sound_mini_batches_nothing_is_learned(block, num_sound):
    rows = random_rows(3)
    rows[num_sound:, 0] = NAN
    filled, report = step(rows, block=block)
    assert torch.equal(filled, torch.zeros(10, dtype=torch.float64))
    assert not report.applied


@pytest.mark.parametrize("block", BLOCKS)
def test_gradients_of_zero_stay_zero(block):
    filled, report = step(np.zeros((3, 10)), block=block)
    assert torch.equal(filled, torch.zeros(10, dtype=torch.float64))
    assert report.shared.item() == 0


def test_half_precision_is_added_up_in_float32():
    rows = np.full((8, 10), 1 / 3)
    filled, report = step(rows, dtype=torch.float16)
    assert filled.dtype == torch.float16
    torch.testing.assert_close(filled, torch.full((10,), 1 / 3, dtype=torch.float16))
    assert report.shared.item() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_batches": 1}, "at least 2"),
        ({"num_batches": 3, "block": "filtre"}, "did you mean 'filter'"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CrossValidated(TwoLayers(), **settings)


def test_blocks_per_layer_need_the_model():
    with pytest.raises(TypeError, match="pass the model itself"):
        CrossValidated(TwoLayers().parameters(), num_batches=2, block="layer")
    CrossValidated(TwoLayers().parameters(), num_batches=2, block="filter")
