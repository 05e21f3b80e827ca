"""What all elementwise relatives promise: equality with their textbook versions, and care with bad mini-batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import GroupStep, gradients
from deepbilevel.rules.and_mask import AndMask
from deepbilevel.rules.gsnr import Gsnr
from deepbilevel.rules.median_of_three import MedianOfThree
from tests import reference
from tests.rules.elementwise import step
from tests.rules.test_cross_validated import random_rows
from tests.test_memory import SIZE, Forbidden, LiveBytes

NAN, INF = float("nan"), float("inf")
TENSORS = [np.arange(0, 6), np.arange(6, 8), np.arange(8, 10)]  # first.weight, first.bias, second.weight
every_rule = pytest.mark.parametrize("rule", [AndMask(), MedianOfThree(), Gsnr()], ids=str)


def textbook(rule, rows):
    if isinstance(rule, AndMask):
        return reference.and_mask(rows, 0.5)
    return reference.median_of_three(rows) if isinstance(rule, MedianOfThree) else reference.gsnr(rows, TENSORS, 0.1)


@every_rule
@pytest.mark.parametrize("k", [3, 4, 8])
def test_relatives_equal_their_textbook_versions(rule, k):
    filled, report = step(rule, random_rows(k))
    np.testing.assert_allclose(filled, textbook(rule, random_rows(k)), rtol=1e-9, atol=1e-14)
    assert report.applied
    np.testing.assert_allclose(report.norms, np.linalg.norm(random_rows(k), axis=1))
    assert report.weights.sum().item() == pytest.approx(1)


@every_rule
@given(k=st.integers(3, 7), seed=st.integers(0, 2**31))
def test_relatives_equal_their_textbook_versions_for_any_gradients(rule, k, seed):
    rows = random_rows(k, seed) * 10.0 ** np.random.RandomState(seed).randint(-3, 4, size=10)
    filled, _ = step(rule, rows)
    np.testing.assert_allclose(filled, textbook(rule, rows), rtol=1e-7, atol=1e-12 * np.abs(rows).max())


@every_rule
def test_where_all_are_equal_nothing_is_taken_away(rule):
    row = np.linspace(-1, 1, 10)
    filled, report = step(rule, [row] * 4)
    np.testing.assert_allclose(filled, row, rtol=1e-12)
    assert report.applied


@pytest.mark.parametrize("rule", [AndMask(), Gsnr()], ids=str)
@given(order=st.permutations(range(5)))
def test_the_order_of_mini_batches_does_not_matter(rule, order):
    rows = random_rows(5)
    torch.testing.assert_close(step(rule, rows[order])[0], step(rule, rows)[0], rtol=1e-9, atol=1e-12)


@every_rule
@given(scale=st.floats(1e-6, 1e6))
def test_scaling_all_gradients_scales_the_result_alone(rule, scale):
    rows = random_rows(5)
    torch.testing.assert_close(step(rule, rows * scale)[0], step(rule, rows)[0] * scale, rtol=1e-9, atol=0)


@pytest.mark.parametrize("at_hand", [True, False])
@every_rule
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_mini_batch_that_is_not_finite_is_left_out(rule, bad, place, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    rows = random_rows(7)
    broken = rows.copy()
    broken[place, 5] = bad
    filled, report = step(rule, broken)
    if isinstance(rule, MedianOfThree):
        parts = [np.delete(rows[p::3], place // 3, axis=0) if p == place % 3 else rows[p::3] for p in range(3)]
        expected = np.median([part.mean(axis=0) for part in parts], axis=0)
    else:
        expected = textbook(rule, np.delete(rows, place, axis=0))
    np.testing.assert_allclose(filled, expected, rtol=1e-9, atol=1e-14)
    assert report.skipped == (place,)
    assert report.weights[place] == 0
    assert report.weights.sum().item() == pytest.approx(1)


@every_rule
@pytest.mark.parametrize("num_sound", [0, 1])
def test_with_too_few_sound_mini_batches_nothing_is_learned(rule, num_sound):
    rows = random_rows(4)
    rows[num_sound:, 0] = NAN
    filled, report = step(rule, rows)
    assert torch.equal(filled, torch.zeros(10, dtype=torch.float64))
    assert not report.applied


@every_rule
def test_gradients_of_zero_stay_zero_and_are_not_called_a_step(rule):
    filled, report = step(rule, np.zeros((3, 10)))
    assert torch.equal(filled, torch.zeros(10, dtype=torch.float64))
    assert not report.applied


@every_rule
def test_half_precision_is_added_up_in_float32(rule):
    filled, _ = step(rule, np.full((8, 10), 1 / 3), dtype=torch.float16)
    assert filled.dtype == torch.float16
    torch.testing.assert_close(filled, torch.full((10,), 1 / 3, dtype=torch.float16))


@pytest.mark.parametrize(("rule", "buffers"), [(AndMask(), 2), (MedianOfThree(), 3), (Gsnr(), 2)])
def test_between_mini_batches_a_rule_holds_as_many_buffers_as_it_says(rule, buffers):
    parameter = nn.Parameter(torch.zeros(SIZE))
    made = GroupStep([parameter], rule, num_batches=8)
    with LiveBytes() as memory:
        for i in range(8):
            loss = (parameter * (i + 1)).sum()
            made.backward(loss)
            del loss
            held = memory.live / (4 * SIZE)
            assert held <= buffers * 1.02
        assert held >= buffers * 0.98
        made.fill()
        assert memory.live / (4 * SIZE) == pytest.approx(1, rel=0.02)  # .grad


@every_rule
def test_they_wait_for_the_device_only_where_reading_waits_for_nothing(rule, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: False)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    made = GroupStep(model, rule, num_batches=3)
    losses = [model(torch.randn(2, 3)).square().mean() for _ in range(3)]
    with Forbidden():
        for loss in losses:
            made.backward(loss)
        made.fill()
