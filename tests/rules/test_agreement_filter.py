"""Gradient agreement filtering: equal to its textbook version, and to its authors' package where that is installed."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Subset, TensorDataset

from deepbilevel import GroupStep, gradients
from deepbilevel.rules.agreement_filter import AgreementFilter
from tests import reference
from tests.models import build, images
from tests.test_memory import SIZE, Forbidden, LiveBytes

NAN, INF = float("nan"), float("inf")


def step(rows, **settings):
    parameter = nn.Parameter(torch.zeros(len(rows[0]), dtype=torch.float64))
    rule = GroupStep([parameter], AgreementFilter(**settings), num_batches=len(rows))
    for row in rows:
        rule.backward(parameter @ torch.as_tensor(row, dtype=torch.float64))
    report = rule.fill()
    return parameter.grad, report


def random_rows(k, seed=0):
    return np.random.RandomState(seed).randn(k, 6) + 0.2


def test_worked_by_hand():
    # The second contradicts; the third, at 45 degrees, joins: (3, 1); the fourth joins that: (2, 2).
    gradient, report = step([[4.0, 0.0], [-1.0, 0.1], [2.0, 2.0], [1.0, 3.0]])
    assert gradient.tolist() == [2.0, 2.0]
    assert report.weights.tolist() == [0.25, 0.0, 0.25, 0.5]
    assert report.agreement.tolist() == pytest.approx([-1 / 1.01**0.5, 0.5**0.5, 6 / 10])
    assert report.norms.tolist() == pytest.approx([4.0, 1.01**0.5, 8**0.5, 10**0.5])


@given(st.integers(2, 8), st.integers(0, 2**31), st.sampled_from([0.5, 0.97, 1.0, 2.0]))
def test_it_equals_the_textbook_version(k, seed, distance):
    rows = random_rows(k, seed)
    gradient, report = step(rows, max_cosine_distance=distance)
    expected = reference.agreement_filter(rows, distance)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(report.weights.numpy() @ rows, expected, rtol=1e-9, atol=1e-12)
    assert report.applied == expected.any()


def test_if_none_agrees_nothing_is_learned():
    gradient, report = step([[1.0, 0.0], [-1.0, 0.0], [-1.0, 1.0]])
    assert gradient.tolist() == [0.0, 0.0]
    assert report.weights.tolist() == [0.0] * 3
    assert not report.applied
    gradient, report = step([[1.0, 0.0], [-1.0, 0.0]], max_cosine_distance=2)
    assert gradient.tolist() == [0.0, 0.0]
    assert not report.applied


@given(st.integers(0, 2**31), st.floats(1e-6, 1e6))
def test_scaling_all_gradients_scales_the_result_alone(seed, scale):
    rows = random_rows(5, seed)
    torch.testing.assert_close(step(rows * scale)[0], step(rows)[0] * scale, rtol=1e-9, atol=0)


@pytest.mark.parametrize("at_hand", [True, False])
@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize("places", [(0,), (2,), (5,), (0, 1), (0, 3)])
def test_mini_batches_that_are_not_finite_are_left_out(places, bad, at_hand, monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: at_hand)
    rows = random_rows(6)
    broken = rows.copy()
    broken[list(places), 1] = bad
    gradient, report = step(broken, max_cosine_distance=1.2)
    np.testing.assert_allclose(gradient, reference.agreement_filter(np.delete(rows, places, axis=0), 1.2), rtol=1e-9)
    assert report.skipped == places
    assert not report.weights[list(places)].any()
    assert report.weights.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("num_sound", [0, 1])
def test_with_fewer_than_two_sound_mini_batches_nothing_is_learned(num_sound):
    rows = random_rows(4)
    rows[num_sound:, 0] = NAN
    gradient, report = step(rows)
    assert not gradient.any()
    assert not report.applied


def test_it_holds_one_buffer_between_mini_batches_whatever_their_number():
    parameter = nn.Parameter(torch.zeros(SIZE))
    rule = GroupStep([parameter], AgreementFilter(), num_batches=8)
    with LiveBytes() as memory:
        for i in range(8):
            loss = (parameter * (i + 1)).sum()
            rule.backward(loss)
            del loss
            assert memory.live / (4 * SIZE) == pytest.approx(1, rel=0.02)


def test_it_waits_for_no_device(monkeypatch):
    monkeypatch.setattr(gradients, "_is_at_hand", lambda numbers: False)
    model = nn.Linear(3, 4)
    rule = GroupStep(model, AgreementFilter(), num_batches=3)
    losses = [model(torch.randn(2, 3)).square().mean() for _ in range(3)]
    with Forbidden():
        for loss in losses:
            rule.backward(loss)
        rule.fill()


@pytest.mark.parametrize("distance", [-0.1, 2.1, NAN])
def test_a_distance_that_cannot_be_is_refused(distance):
    with pytest.raises(ValueError, match=r"max_cosine_distance must lie in 0 .. 2, got .*; its authors recommend"):
        AgreementFilter(max_cosine_distance=distance)


@pytest.mark.parametrize("distance", [0.3, 0.8, 0.97, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_it_takes_the_steps_of_its_authors_package(seed, distance):
    package = pytest.importorskip(
        "gradient_agreement_filtering", reason="to compare: pip install gradient-agreement-filtering==0.1.3"
    )
    batches = images(5, batch_size=4, seed=seed)
    parts = torch.arange(20).split(4)
    data = TensorDataset(torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches]))
    theirs, ours, criterion = build("BatchNorm-like"), build("BatchNorm-like"), nn.CrossEntropyLoss()
    result = package.step_GAF(
        theirs,
        torch.optim.SGD(theirs.parameters(), lr=0.5),
        criterion,
        [Subset(data, part.tolist()) for part in parts],
        wandb=False,
        verbose=False,
        cos_distance_thresh=distance,
    )
    rule = GroupStep(ours, AgreementFilter(max_cosine_distance=distance), num_batches=5)
    report = rule.step_over(batches, lambda batch: criterion(ours(batch[0]), batch[1]))
    torch.optim.SGD(ours.parameters(), lr=0.5).step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)
    assert int((report.weights != 0).sum()) == (result["agreed_count"] + 1 if result["agreed_count"] else 0)
    assert 1 - report.agreement[-1].item() == pytest.approx(result["cosine_distance"])
