"""The weighted sum: on a CPU, where a weight is read at once, and on a device, where nobody waits for it."""

import pytest
import torch

from deepbilevel import gradients
from deepbilevel.gradients import Blocks, WeightedGradientSum
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.exact import ExactBilevel
from tests.contracts.loop import K, by, filled
from tests.models import build, images

NAN, INF = float("nan"), float("inf")


def weighted_sum(weights, groups, *, at_hand, monkeypatch, divisor=1.0):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    total = WeightedGradientSum(Blocks([0, 0, 1]))
    for weight, group in zip(weights, groups, strict=True):
        total.add(torch.tensor(weight), {position: gradient.clone() for position, gradient in group.items()})
    return total.divided_by(torch.full((2,), divisor))


GROUPS = {
    "all finite": [{p: torch.randn(3, 2) for p in range(3)} for _ in range(4)],
    "some absent": [{0: torch.ones(2), 2: torch.ones(2)}, {1: torch.ones(2)}, {0: torch.ones(2)}, {2: torch.ones(2)}],
    "half precision": [{p: torch.randn(3).half() for p in range(3)} for _ in range(4)],
}
WEIGHTS = [[0.5, -1.0], [0.0, 0.25], [1e-6, 3.0], [-2.0, 0.0]]


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("at_hand", [True, False])
def test_it_is_the_sum_of_weights_times_gradients(name, at_hand, monkeypatch):
    total = weighted_sum(WEIGHTS, GROUPS[name], at_hand=at_hand, monkeypatch=monkeypatch)
    for position in range(3):
        terms = [
            weights[position == 2] * group[position].double()
            for weights, group in zip(WEIGHTS, GROUPS[name], strict=True)
            if position in group
        ]
        torch.testing.assert_close(total[position].double(), sum(terms), rtol=1e-6, atol=1e-6)
        assert total[position].dtype == torch.float32


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("first", [True, False])
def test_a_weight_of_zero_silences_what_is_not_finite(at_hand, bad, first, monkeypatch):
    broken = {p: torch.tensor([bad, 1.0]) for p in range(3)}
    sound = {p: torch.tensor([2.0, 3.0]) for p in range(3)}
    groups, weights = (
        ([broken, sound], [[0.0, 0.0], [1.0, 1.0]]) if first else ([sound, broken], [[1.0, 1.0], [0.0, 0.0]])
    )
    total = weighted_sum(weights, groups, at_hand=at_hand, monkeypatch=monkeypatch)
    assert all(torch.equal(total[p], torch.tensor([2.0, 3.0])) for p in range(3))


@pytest.mark.parametrize("at_hand", [True, False])
def test_weights_beyond_the_range_of_numbers_leave_zeros(at_hand, monkeypatch):
    groups = [{p: torch.ones(2) for p in range(3)}] * 2
    total = weighted_sum([[INF, INF], [1.0, -INF]], groups, at_hand=at_hand, monkeypatch=monkeypatch, divisor=INF)
    assert all(torch.equal(total[p], torch.zeros(2)) for p in range(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("at_hand", [True, False])
def test_squared_norms_are_added_up_per_block_in_float32_at_least(dtype, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    group = {0: torch.full((300,), 20.0, dtype=dtype), 2: torch.full((2, 2), 0.5, dtype=dtype)}
    norms = Blocks([0, 0, 1]).sq_norms(group)
    assert norms.tolist() == pytest.approx([120_000.0, 1.0])  # beyond float16's 65504
    assert norms.dtype == torch.promote_types(dtype, torch.float32)


@pytest.mark.parametrize(
    "rule", [BilevelRule(), BilevelRule(per_layer=True), ExactBilevel(), BilevelRule(normalize=False)], ids=str
)
def test_a_step_is_the_same_on_a_device_and_on_a_cpu(rule, monkeypatch):
    results = []
    for at_hand in (True, False):
        monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers, at_hand=at_hand: at_hand)
        results.append(filled(build("CifarNet-like"), by(rule), images(K)))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-15)
