"""A group in one pass amid what loops and models do besides: the same as mini-batch by mini-batch."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.nn import functional as F

from deepbilevel import Bilevel
from deepbilevel.gradients import Blocks
from deepbilevel.one_pass.outer_products import OuterProducts
from tests.one_pass.test_one_pass import K, assert_same, cross_entropy_of, group_of, in_two_ways


def network():
    layers = nn.Conv2d(3, 4, 3), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 30), nn.Tanh(), nn.Linear(30, 2)
    return nn.Sequential(*layers).double()


def images_to_mislead(model, x, y):
    x = x.detach().clone().requires_grad_()
    (slope,) = torch.autograd.grad(F.cross_entropy(model(x), y, reduction="sum"), x)
    return x.detach() + 0.1 * slope.sign()


def images_to_mislead_by_backward(model, x, y):
    x = x.detach().clone().requires_grad_()
    F.cross_entropy(model(x), y, reduction="sum").backward()
    return x.detach() + 0.1 * x.grad.sign()


@pytest.mark.parametrize("mislead", [images_to_mislead, images_to_mislead_by_backward])
def test_gradients_that_a_loss_computes_for_itself_do_not_count(mislead):
    model = network()
    assert_same(
        model, group_of(3, 4, 4), criterion=lambda x, y, **how: F.cross_entropy(model(mislead(model, x, y)), y, **how)
    )


@pytest.mark.parametrize("norm", [nn.Identity, lambda: nn.BatchNorm1d(16)], ids=["", "batch normalisation"])
def test_activations_may_be_kept_elsewhere(norm):
    model = network()
    model.insert(2, norm().double())

    def criterion(x, y, **how):
        with save_on_cpu():
            return F.cross_entropy(model(x), y, **how)

    assert_same(model, group_of(3, 4, 4), criterion=criterion)


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Flatten(2), nn.Linear(16, 5)),
        (nn.Flatten(2), nn.Conv1d(3, 5, 2)),
        (nn.Conv2d(3, 5, 2),),
        (nn.Conv2d(3, 5, 2), nn.BatchNorm2d(5)),
    ],
    ids=["linear", "one axis", "two axes", "batch normalisation"],
)
def test_outputs_may_be_changed_in_place(layers):
    model = nn.Sequential(*layers, nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(2)).double()
    model(torch.zeros(1, 3, 4, 4, dtype=torch.float64))
    assert_same(model, group_of(3, 4, 4))


def test_frozen_layers_may_get_anything():
    class Positioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions, self.head = nn.Embedding(3, 16).requires_grad_(False), nn.Linear(48, 2)

        def forward(self, x):
            return self.head((x.flatten(2) + self.positions(torch.arange(3))).flatten(1))

    assert_same(Positioned().double(), group_of(3, 4, 4))


def test_positions_may_be_looked_up_for_every_sample():
    class Positioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.positions, self.head = nn.Embedding(12, 16), nn.Linear(192, 2)

        def forward(self, x):
            return self.head((x.flatten(2) + self.positions(torch.arange(12).expand(len(x), -1))).flatten(1))

    assert_same(Positioned().double(), group_of(12, 4, 4))  # as many positions as samples


def test_gradients_of_other_parameters_are_added_to_theirs():
    model, gradients = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 2)).double(), []
    biases, criterion = [model[0].bias, model[2].bias], cross_entropy_of(model)
    for at_once in (False, True):
        model.zero_grad()
        step = Bilevel(biases, num_batches=K)
        if at_once:
            step.step_at_once(group_of(3, 4, 4), criterion)
        else:
            step.step_over(group_of(3, 4, 4), lambda batch: criterion(batch).mean())
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-12)


def test_statistics_of_instances_are_those_of_one_mini_batch_after_another():
    model = nn.Sequential(nn.InstanceNorm2d(3, track_running_stats=True), nn.Flatten(), nn.Linear(48, 2)).double()
    criterion, statistics = cross_entropy_of(model), []
    for at_once in (False, True):
        model[0].reset_running_stats()
        step = Bilevel(model, num_batches=K)
        if at_once:
            step.step_at_once(group_of(3, 4, 4), criterion)
        else:
            step.step_over(group_of(3, 4, 4), lambda batch: criterion(batch).mean())
        statistics.append([model[0].running_mean.clone(), model[0].running_var.clone()])
    torch.testing.assert_close(statistics[1], statistics[0], rtol=1e-12, atol=1e-12)


def test_statistics_without_a_layer_are_of_a_mini_batch_too():
    class Normalised(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(48, 2)

        def forward(self, x):
            x = F.batch_norm(x, None, None, training=True)
            return self.head(torch.batch_norm(x.square(), None, None, None, None, True, 0.1, 1e-5, False).flatten(1))

    assert_same(Normalised().double(), group_of(3, 4, 4))


def test_autocast_leaves_double_precision_alone():
    model = network()

    def criterion(x, y, **how):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(model(x), y, **how)

    assert_same(model, group_of(3, 4, 4), criterion=criterion)


def test_autocast_around_a_step_narrows_no_comparison():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 60), nn.Tanh(), nn.Linear(60, 2))
    group = [(x.float(), y) for x, y in group_of(3, 4, 4)]

    def losses_of(batch):
        with torch.autocast("cpu", torch.bfloat16):
            return cross_entropy_of(model)(batch)

    gradients = []
    for around in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            Bilevel(model, num_batches=K).step_at_once(group, losses_of)
        gradients.append(model[1].weight.grad)
    assert torch.equal(*gradients)


def test_small_weights_do_not_vanish_in_half_precision():
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 40), nn.Tanh(), nn.Linear(40, 2)).half()
    group = [(x.half(), y) for x, y in group_of(3, 4, 4)]
    (gradient, _), (own_gradient, _) = in_two_ways(
        model, group, criterion=lambda x, y, **how: 1e-4 * F.cross_entropy(model(x).float(), y, **how)
    )
    assert (own_gradient - gradient).norm() < 0.05 * gradient.norm()


def test_no_squared_norm_is_negative():
    class AllButCancelled(OuterProducts):
        """Rows that all but cancel leave a square of about zero; below it here, as rounding would have it."""

        def dot(self, other, dtype):
            return super().dot(other, dtype) - 1e-6

    left, right = torch.randn(1, 40), torch.randn(1, 40)
    products = AllButCancelled(torch.cat([left, -left]), torch.cat([right, right]))
    assert (
        products.dot(products, torch.float32) < 0
    )  # else nothing is tried: without the clamp in sq_norms this is what it returns
    assert Blocks([0]).sq_norms({0: products}) == 0
