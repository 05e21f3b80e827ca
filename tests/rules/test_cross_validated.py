"""The cross-validated gradient: equal to its textbook version, and what it claims about agreement and noise."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepbilevel import CrossValidated, gradients
from tests.contracts.loop import filled as filled_by
from tests.models import NETWORKS, Vectors, build, gradient_matrix, images
from tests.reference import cross_validate
from tests.training.test_packing import same, travel

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


def mean_over_angles(k, statistic):
    """Return the mean of a statistic of c = cos^2 of the angle between k independent normal numbers and (1, ..., 1).

    The angle of a normal vector has the density sin^(k - 2). ``S1^2 / S2 = k c`` holds for k gradients of a parameter.
    """
    angles = np.linspace(0, np.pi, 20_001)
    density = np.sin(angles) ** (k - 2)
    return (statistic(np.cos(angles) ** 2) * density).sum() / density.sum()


@pytest.mark.parametrize("k", [2, 3, 8])
def test_what_independent_mini_batches_say_is_learned_as_little_as_theory_says(k):
    """Before it is clamped the factor is 0 on average, with variance 2 / ((k - 1) (k + 2)).

    All bounds are five standard deviations of a mean over independent parameters; the deviations are theory's too.
    """
    num_parameters = 200_000
    rows = np.random.RandomState(k).randn(k, num_parameters)
    filled, report = fill_vectors(rows)

    def unclamped(c):
        return (k * c - 1) / (k - 1)

    def factor(c):
        return np.clip(unclamped(c), 0, 1)

    def five_deviations(variance):
        return 5 * np.sqrt(variance / num_parameters)

    variance = mean_over_angles(k, lambda c: unclamped(c) ** 2)
    assert mean_over_angles(k, unclamped) == pytest.approx(0, abs=1e-3)
    assert variance == pytest.approx(2 / ((k - 1) * (k + 2)), rel=1e-3)
    seen = unclamped(rows.sum(axis=0) ** 2 / (rows**2).sum(axis=0) / k)
    assert abs(seen.mean()) < five_deviations(variance)

    shared = mean_over_angles(k, factor)
    bound = five_deviations(mean_over_angles(k, lambda c: factor(c) ** 2) - shared**2)
    assert report.shared.item() == pytest.approx(shared, abs=bound)
    # |g|^2 is independent of the angle and k on average, so the mean of (a S1 / k)^2 is that of a^2 c.
    power = mean_over_angles(k, lambda c: factor(c) ** 2 * c)
    assert abs(filled.mean()) < five_deviations(power)
    moment = mean_over_angles(k, lambda c: factor(c) ** 4 * c**2) * (1 + 2 / k)  # of |g|^4: k (k + 2)
    assert (filled**2).mean() == pytest.approx(power, abs=five_deviations(moment - power**2))


def fill_vectors(rows):
    """Hand gradients [k, d] of one parameter to the rule; return the gradient it fills and its report."""
    model = Vectors(torch.from_numpy(rows))
    rule = CrossValidated([model.parameter], num_batches=len(rows))
    for loss in model.losses():
        rule.backward(loss)
    report = rule.fill()
    return model.parameter.grad.numpy(), report


@given(st.integers(2, 6), st.integers(0, 2**31), st.sampled_from(BLOCKS))
def test_a_gradient_is_never_turned_around_and_never_longer_than_the_mean(k, seed, block):
    rows = random_rows(k, seed) * 10.0 ** np.random.RandomState(seed).randint(-3, 4, size=10)
    filled, report = step(rows, block=block)
    filled, mean = filled.numpy(), rows.mean(axis=0)
    assert (filled * mean >= 0).all()
    assert (np.abs(filled) <= np.abs(mean) * (1 + 1e-12)).all()
    assert 0 <= report.shared.item() <= 1 + 1e-6


def columns_of(model, block):
    """Return for each block of a model the places of its parameters in one flat vector."""
    owners, places, start = {}, {}, 0
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), name)
    for parameter in model.parameters():
        own = np.arange(start, start := start + parameter.numel())
        if block == "filter":
            places.update({(start, i): part for i, part in enumerate(own.reshape(len(parameter), -1))})
        else:
            places.setdefault("model" if block == "model" else owners[id(parameter)], []).append(own)
    blocks = [np.concatenate(each) if isinstance(each, list) else each for each in places.values()]
    return [np.array([i]) for i in range(start)] if block == "parameter" else blocks


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("network", NETWORKS)
def test_it_equals_the_textbook_version_on_networks(network, block):
    model, batches = build(network), [(x, y % 2) for x, y in images(5)]  # two labels: something is shared
    expected = cross_validate(gradient_matrix(model, batches).numpy(), columns_of(model, block))
    make = partial(CrossValidated, block=block)
    np.testing.assert_allclose(filled_by(model, make, batches), expected, rtol=1e-9, atol=1e-14)
    assert expected.any()


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("k", [2, 8, 32])
def test_float32_stays_near_the_textbook_version(block, k):
    rows = random_rows(k).astype(np.float32)
    filled, _ = step(rows, dtype=torch.float32, block=block)
    expected = cross_validate(rows.astype(np.float64), COLUMNS[block])
    # (S1^2 - S2) / S2 loses a few roundings of S1^2 / S2 <= k, which the division by k - 1 takes back.
    assert (np.abs(filled.numpy() - expected) <= 16 * np.finfo(np.float32).eps * np.abs(rows).mean(axis=0)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("exponent", [-30, -1, 1, 30])
def test_scaling_by_a_power_of_two_changes_no_bit_of_the_factors(block, exponent, dtype):
    rows = random_rows(5).astype(np.float32)
    filled, report = step(rows, dtype=dtype, block=block)
    scaled, its_report = step(rows * 2.0**exponent, dtype=dtype, block=block)
    assert torch.equal(scaled, filled * 2.0**exponent)
    assert torch.equal(its_report.shared, report.shared)


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


# Less shrinkage, and averages over groups.


def run_groups(groups, *, dtype=torch.float64, rule=None, **settings):
    """Hand groups of given gradients [n, k, 10] to one step; return the last gradient it fills, flat, and the step."""
    model = TwoLayers(dtype)
    rule = rule or CrossValidated(model, num_batches=groups.shape[1], **settings)
    parameters = rule.parameters
    for group in torch.as_tensor(groups, dtype=dtype):
        for row in group:
            parts = row.split([p.numel() for p in parameters])
            rule.backward(sum((p.flatten() * part).sum() for p, part in zip(parameters, parts, strict=True)))
        report = rule.fill()
    return torch.cat([p.grad.flatten() for p in parameters]), rule, report


def random_groups(num_groups=4, k=4, seed=0):
    return np.stack([random_rows(k, seed + number) for number in range(num_groups)])


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("strength", [0.125, 1.0, 3.0])
def test_strength_and_momentum_equal_the_textbook_version(block, momentum, strength):
    settings = {"strength": strength, "momentum": momentum}
    filled, _, _ = run_groups(random_groups(), block=block, **settings)
    expected = cross_validate(random_groups(), COLUMNS[block], **settings)
    np.testing.assert_allclose(filled, expected, rtol=1e-10, atol=1e-14)


@given(st.integers(2, 6), st.integers(0, 2**31), st.sampled_from(BLOCKS), st.floats(0.01, 100), st.floats(0, 0.99))
def test_any_strength_and_momentum_equal_the_textbook_version(k, seed, block, strength, momentum):
    groups = random_groups(3, k, seed % 2**30)
    filled, _, report = run_groups(groups, block=block, strength=strength, momentum=momentum)
    expected = cross_validate(groups, COLUMNS[block], strength=strength, momentum=momentum)
    np.testing.assert_allclose(filled, expected, rtol=1e-8, atol=1e-10)
    assert 0 <= report.shared.item() <= 1 + 1e-6


def test_one_over_k_is_the_best_linear_shrinkage_of_the_mean():
    """Over many parameters of known signal and noise, no multiple of the mean is nearer to the signal on average.

    The multiple that minimises ``E (a mean - signal)^2`` is ``signal^2 / (signal^2 + noise / k)``. Signal and noise are
    the same for all parameters here, so the whole model is one block and both are known well.
    """
    k, signal, noise = 4, 0.5, 2.0
    rows = np.random.RandomState(0).randn(k, 400_000) * noise + signal
    model = Vectors(torch.from_numpy(rows))
    rule = CrossValidated([model.parameter], num_batches=k, block="model", strength=1 / k)
    for loss in model.losses():
        rule.backward(loss)
    shared = rule.fill().shared.item()
    # P is estimated with a standard deviation of about 0.004 here, which moves the factor by 0.004.
    assert shared == pytest.approx(signal**2 / (signal**2 + noise**2 / k), abs=0.02)

    def error(factor):
        return ((factor * rows.mean(axis=0) - signal) ** 2).mean()

    assert error(shared) < min(error(shared - 0.05), error(shared + 0.05))


@pytest.mark.parametrize("block", BLOCKS)
def test_averages_make_the_factor_of_pure_noise_smaller(block):
    """An average over ten groups sees that nothing is shared; one group takes chance for agreement."""
    groups = np.random.RandomState(0).randn(60, 4, 10)

    def mean_factor(**settings):
        model = TwoLayers()
        rule = CrossValidated(model, num_batches=4, block=block, **settings)
        shared = [run_groups(group[None], rule=rule)[2].shared.item() for group in groups]
        return np.mean(shared[20:])

    assert mean_factor(momentum=0.9) < mean_factor() / 1.5


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("bad", [NAN, INF])
def test_a_group_that_cannot_be_compared_leaves_the_averages_alone(block, bad):
    groups = random_groups(3)
    broken = np.insert(groups, 1, groups[0], axis=0)
    broken[1, 1:, 5] = bad  # one sound mini-batch is left
    settings = {"block": block, "momentum": 0.9}
    filled, _, _ = run_groups(groups, **settings)
    again, _, _ = run_groups(broken, **settings)
    np.testing.assert_allclose(again, filled, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("block", BLOCKS)
def test_averages_are_resumed_bit_for_bit_and_a_state_does_not_change_afterwards(block):
    settings = {"block": block, "momentum": 0.9, "strength": 0.25}
    groups = random_groups(5)
    unbroken, rule, _ = run_groups(groups[:3], **settings)
    state = rule.state_dict()
    kept = travel(state)
    unbroken, _, _ = run_groups(groups[3:], rule=rule)
    assert same(state, kept)
    resumed = CrossValidated(TwoLayers(), num_batches=4, **settings)
    resumed.load_state_dict(kept)
    again, _, _ = run_groups(groups[3:], rule=resumed)
    assert torch.equal(again, unbroken)
    fresh, _, _ = run_groups(groups[3:], **settings)
    assert not torch.equal(fresh, unbroken)  # the memory matters


@pytest.mark.parametrize("block", BLOCKS)
def test_averages_of_another_model_are_refused_and_nothing_changes(block):
    _, rule, _ = run_groups(random_groups(1), block=block, momentum=0.9)
    other = CrossValidated(nn.Sequential(*(nn.Linear(2, 5) for _ in range(3))), num_batches=4, block="filter")
    if block == "filter":
        other = CrossValidated(nn.Linear(7, 5), num_batches=4, block=block, momentum=0.9)
        with pytest.raises(ValueError, match="which does not fit these parameters"):
            other.load_state_dict(rule.state_dict())
    else:
        with pytest.raises(ValueError, match=r"saved with rule.block|this step has"):
            other.load_state_dict(rule.state_dict())
    assert other.state_dict()["memory"] == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strength": 0}, "strength must be positive and finite, got 0; 1 counts"),
        ({"strength": -1.0}, "strength must be positive"),
        ({"strength": NAN}, "strength must be positive"),
        ({"strength": INF}, "strength must be positive"),
        ({"momentum": 1}, "momentum must lie in 0 .. 1, got 1; it must be below 1"),
        ({"momentum": -0.1}, "momentum must lie in 0 .. 1"),
    ],
)
def test_impossible_strengths_and_momenta_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        CrossValidated(TwoLayers(), num_batches=3, **settings)


def test_text_is_no_strength():
    with pytest.raises(TypeError, match="strength must be a number, got '1'"):
        CrossValidated(TwoLayers(), num_batches=3, strength="1")
