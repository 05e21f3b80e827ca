"""The elementwise relatives: equal to their textbook versions, and what their authors claim of them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import gradients
from deepbilevel.methods import AndMask, GsnrWeighted, MedianOfThree
from tests import reference
from tests.test_cross_validated import TwoLayers, random_rows
from tests.test_memory import SIZE, Forbidden, LiveBytes

NAN, INF = float("nan"), float("inf")
RULES = {"and-mask": AndMask, "median-of-three": MedianOfThree, "gsnr": GsnrWeighted}
TENSORS = [np.arange(0, 6), np.arange(6, 8), np.arange(8, 10)]  # first.weight, first.bias, second.weight
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def step(rule, rows, *, dtype=torch.float64, **settings):
    """Hand one group of given gradients [k, 10] to a rule; return the gradient it fills, flat, and its report."""
    model = TwoLayers(dtype)
    made = rule(model, num_batches=len(rows), **settings)
    for row in torch.as_tensor(np.asarray(rows), dtype=dtype):
        parts = row.split([p.numel() for p in model.parameters()])
        made.backward(sum((p.flatten() * part).sum() for p, part in zip(model.parameters(), parts, strict=True)))
    report = made.fill()
    return torch.cat([p.grad.flatten() for p in model.parameters()]), report


def textbook(rule, rows):
    if rule is AndMask:
        return reference.and_mask(rows, 0.5)
    return reference.median_of_three(rows) if rule is MedianOfThree else reference.gsnr(rows, TENSORS, 0.1)


def on_vectors(rule, rows, **settings):
    parameter = nn.Parameter(torch.zeros(len(rows[0]), dtype=torch.float64))
    made = rule([parameter], num_batches=len(rows), **settings)
    for row in rows:
        made.backward(parameter @ torch.tensor(row, dtype=torch.float64))
    return parameter, made.fill()


def test_and_mask_worked_by_hand():
    rows = [[1.0, 1.0, 1.0, 0.0], [2.0, -1.0, 2.0, 0.0], [3.0, 6.0, 3.0, 2.0], [4.0, 2.0, -2.0, 2.0]]
    parameter, report = on_vectors(AndMask, rows)  # sums of signs 4, 2, 2, 2 of 4
    assert parameter.grad.tolist() == [2.5, 2.0, 1.0, 1.0]
    assert report.shared.item() == 1
    parameter, report = on_vectors(AndMask, rows, threshold=0.6)
    assert parameter.grad.tolist() == [2.5, 0.0, 0.0, 0.0]
    assert report.shared.item() == 0.25
    assert report.weights.tolist() == [0.25] * 4


@pytest.mark.parametrize(("threshold", "k", "num_agreeing"), [(0.6, 5, 4), (0.6, 25, 20), (0.28, 25, 16)])
def test_a_share_of_signs_that_equals_the_threshold_is_enough_in_any_precision(threshold, k, num_agreeing):
    rows = np.ones((k, 10))
    rows[num_agreeing:] = -1  # |mean sign| is the threshold itself
    for dtype in (torch.float16, torch.float32, torch.float64):
        assert step(AndMask, rows, dtype=dtype, threshold=threshold)[1].shared.item() == 1
        assert step(AndMask, rows, dtype=dtype, threshold=threshold + 0.01)[1].shared.item() == 0


def test_median_of_three_worked_by_hand():
    # Parts: 1st and 4th, 2nd and 5th, 3rd.
    rows = [[1.0, 0.0], [5.0, -1.0], [100.0, 9.0], [3.0, 0.0], [7.0, -3.0]]
    parameter, report = on_vectors(MedianOfThree, rows)  # of (2, 0), (6, -2), (100, 9)
    assert parameter.grad.tolist() == [6.0, 0.0]
    assert report.weights.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 3, 1 / 6, 1 / 6])


def test_gsnr_worked_by_hand():
    # Ratios 4 / 1, 9 / 9 and 1 / 4, their mean 1.75: factors 2.29, 0.57 and 0.14.
    parameter, report = on_vectors(GsnrWeighted, [[1.0, 0.0, -1.0], [3.0, 6.0, 3.0]])
    assert parameter.grad.tolist() == pytest.approx([2.0, 3 / 1.75, 0.25 / 1.75])
    assert report.shared.item() == pytest.approx((1 + 1 / 1.75 + 0.25 / 1.75) / 3)
    parameter, _ = on_vectors(GsnrWeighted, [[1.0, 0.0, -1.0], [3.0, 6.0, 3.0]], floor=0.5)
    assert parameter.grad.tolist() == pytest.approx([2.0, 3 / 1.75, 0.5])


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


@given(k=st.integers(2, 7), seed=st.integers(0, 2**31))
def test_and_mask_is_plain_averaging_where_all_signs_agree(k, seed):
    rows = np.abs(random_rows(k, seed)) * np.sign(np.linspace(-2, 2, 10))
    filled, report = step(AndMask, rows, threshold=1.0)
    np.testing.assert_allclose(filled, rows.mean(axis=0), rtol=1e-12)
    assert report.shared.item() == 1


@pytest.mark.parametrize("rule", [AndMask, GsnrWeighted])
@given(order=st.permutations(range(5)))
def test_the_order_of_mini_batches_does_not_matter(rule, order):
    rows = random_rows(5)
    torch.testing.assert_close(step(rule, rows[order])[0], step(rule, rows)[0], rtol=1e-9, atol=1e-12)


@every_rule
@given(scale=st.floats(1e-6, 1e6))
def test_scaling_all_gradients_scales_the_result_alone(rule, scale):
    rows = random_rows(5)
    torch.testing.assert_close(step(rule, rows * scale)[0], step(rule, rows)[0] * scale, rtol=1e-9, atol=0)


@given(k=st.integers(3, 9), seed=st.integers(0, 2**31))
def test_the_median_lies_between_the_means_of_the_parts_and_owes_nothing_to_one_that_is_wild(k, seed):
    rows = random_rows(k, seed)
    means = np.array([rows[part::3].mean(axis=0) for part in range(3)])
    filled = step(MedianOfThree, rows)[0].numpy()
    assert (means.min(axis=0) - 1e-12 <= filled).all()
    assert (filled <= means.max(axis=0) + 1e-12).all()
    rows[0::3] *= 1e6
    wild = step(MedianOfThree, rows)[0].numpy()
    assert (means[1:].min(axis=0) - 1e-12 <= wild).all()
    assert (wild <= means[1:].max(axis=0) + 1e-12).all()


@given(k=st.integers(2, 7), seed=st.integers(0, 2**31), floor=st.floats(0, 1))
def test_gsnr_confines_the_step_between_the_floor_and_the_mean(k, seed, floor):
    rows = random_rows(k, seed)
    mean, filled = rows.mean(axis=0), step(GsnrWeighted, rows, floor=floor)[0].numpy()
    assert (np.abs(filled) >= floor * np.abs(mean) * (1 - 1e-9)).all()
    assert (np.abs(filled) <= np.abs(mean) * (1 + 1e-9)).all()
    assert (np.sign(filled) * np.sign(mean) >= 0).all()


def test_gsnr_gives_a_parameter_without_noise_all_of_its_mean_and_the_others_their_own_comparison():
    rows = [[1.0, 0.0, 5.0, 0.0], [3.0, 6.0, 5.0, 0.0]]  # ratios 4, 1, infinite and none
    parameter, _ = on_vectors(GsnrWeighted, rows)
    assert parameter.grad.tolist() == pytest.approx([2.0, 3 * 1 / (5 / 3), 5.0, 0.0])


def test_gsnr_keeps_a_small_variance_on_top_of_a_large_mean():
    noise = np.random.RandomState(0).randn(8, 10)
    exact = step(GsnrWeighted, 1000 + noise)[0]
    # In float32 the squares, a million, would have swallowed a variance of one half in a thousand.
    rough = step(GsnrWeighted, 1000 + noise, dtype=torch.float32)[0]
    torch.testing.assert_close(rough.double(), exact, rtol=2e-3, atol=0)


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
    if rule is MedianOfThree:
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


def test_a_median_with_an_empty_part_learns_nothing():
    rows = random_rows(5)
    rows[2, 0] = NAN
    filled, report = step(MedianOfThree, rows)
    assert torch.equal(filled, torch.zeros(10, dtype=torch.float64))
    assert not report.applied
    assert report.weights.tolist() == [0.0] * 5


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


@pytest.mark.parametrize(("rule", "buffers"), [(AndMask, 2), (MedianOfThree, 3), (GsnrWeighted, 2)])
def test_between_mini_batches_a_rule_holds_as_many_buffers_as_it_says(rule, buffers):
    parameter = nn.Parameter(torch.zeros(SIZE))
    made = rule([parameter], num_batches=8)
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
def test_relatives_wait_for_the_device_only_where_reading_waits_for_nothing(rule, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: False)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    made = rule(model, num_batches=3)
    losses = [model(torch.randn(2, 3)).square().mean() for _ in range(3)]
    with Forbidden():
        for loss in losses:
            made.backward(loss)
        made.fill()


@pytest.mark.parametrize(
    ("rule", "settings", "error", "message"),
    [
        (AndMask, {"num_batches": 1}, ValueError, "at least 2"),
        (AndMask, {"num_batches": 3, "threshold": 1.1}, ValueError, r"threshold must lie in 0 .. 1, got 1\.1; 1 asks"),
        (AndMask, {"num_batches": 3, "threshold": "a"}, TypeError, "threshold must be a number, got 'a'"),
        (MedianOfThree, {"num_batches": 2}, ValueError, "num_batches must be at least 3 for a median of three, got 2"),
        (GsnrWeighted, {"num_batches": 3, "floor": NAN}, ValueError, "floor must lie in 0 .. 1, got nan; its authors"),
    ],
)
def test_wrong_settings_are_refused(rule, settings, error, message):
    with pytest.raises(error, match=message):
        rule(TwoLayers(), **settings)
