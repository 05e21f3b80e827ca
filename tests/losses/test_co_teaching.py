"""Co-teaching: who chooses for whom, how many, and that each network learns from its own cross-entropy alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.losses import CoTeaching
from deepbilevel_lab.specs import SpecError
from tests.losses.tasks import Shown, never, task

IMAGES, LABELS = torch.randn(10, 3, generator=torch.Generator().manual_seed(1)), torch.arange(10) % 3


class Turned(Shown):
    """Sees the classes in another order."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.factor.fill_(2.0)

    def forward(self, scores):
        return super().forward(scores).roll(1, dims=1)


def taught(epoch=9, **settings):
    objective = CoTeaching(**settings).make(task(LABELS, 3, make_network=Turned))
    objective.begin_epoch(epoch, never)
    return objective


def test_each_network_learns_from_what_is_easy_for_the_other():
    model, objective = Shown(), taught(forget_rate=0.4)
    loss = objective(model, IMAGES, LABELS, LABELS)
    own, others = IMAGES, (2 * IMAGES).roll(1, dims=1)
    easy_for_own = F.cross_entropy(own, LABELS, reduction="none").argsort()[:6]
    easy_for_others = F.cross_entropy(others, LABELS, reduction="none").argsort()[:6]
    assert set(easy_for_own.tolist()) != set(easy_for_others.tolist())
    expected = F.cross_entropy(own[easy_for_others], LABELS[easy_for_others])
    torch.testing.assert_close(loss, expected + F.cross_entropy(others[easy_for_own], LABELS[easy_for_own]))
    loss.backward()
    factor = torch.ones((), requires_grad=True)
    F.cross_entropy(factor * own[easy_for_others], LABELS[easy_for_others]).backward()
    torch.testing.assert_close(model.factor.grad, factor.grad)


def test_while_nothing_is_left_out_the_network_learns_from_cross_entropy_alone():
    for objective in (taught(forget_rate=0.0), taught(epoch=0, forget_rate=0.4, gradual=0.5)):
        model, plain = Shown(), Shown()
        images, labels = torch.randn(999, 3), torch.arange(999) % 3  # many, so that their order tells in the last bits
        loss, alone = objective(model, images, labels, labels), F.cross_entropy(plain(images), labels)
        assert torch.equal(loss, alone + F.cross_entropy(objective.partner(images), labels))
        loss.backward()
        alone.backward()
        assert torch.equal(model.factor.grad, plain.factor.grad)


@pytest.mark.parametrize(
    ("gradual", "rates"),
    [
        (0.0, [0.4, 0.4, 0.4]),
        (0.05, [0.0, 0.4, 0.4]),  # one epoch of twenty
        (0.25, [0.0, 0.1, 0.2, 0.3, 0.4, 0.4]),  # five
    ],
)
def test_the_rate_grows_from_nothing(gradual, rates):
    spec = CoTeaching(0.4, gradual)
    assert [spec.rate(epoch, 20) for epoch in range(len(rates))] == pytest.approx(rates)


def test_at_least_one_image_is_left():
    loss = taught(forget_rate=0.9)(Shown(), IMAGES[:2], LABELS[:2], LABELS)
    assert loss > 0


def test_the_second_network_is_another_one():
    torch.manual_seed(0)
    objective = CoTeaching().make(task(LABELS, 3, network=nn.Linear(3, 3), make_network=lambda: nn.Linear(3, 3)))
    assert [name for name, _ in objective.named_parameters()] == ["partner.weight", "partner.bias"]
    with pytest.raises(SpecError, match=r"both begin with the same weights; leave network\.weights out"):
        CoTeaching().make(task(LABELS, 3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"forget_rate": 1.0}, "forget_rate must be at least 0 and less than 1, got 1.0"),
        ({"gradual": -0.1}, "gradual is a share of the epochs, so it must lie in 0 .. 1, got -0.1"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, message):
    with pytest.raises(SpecError, match=message):
        CoTeaching(**settings)
