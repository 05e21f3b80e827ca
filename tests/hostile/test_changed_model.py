"""A model that is changed after its step was made: said at the next group, instead of training a part of it."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from deepbilevel import Bilevel


def make_model():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def train_group(model, step):
    for _ in range(step.num_batches):
        step.backward(model(torch.rand(5, 3)).square().mean())
    return step.fill()


def replace_head(model):
    model[2] = nn.Linear(4, 2)


def add_layer(model):
    model.append(nn.Linear(2, 2))


def add_parametrization(model):
    parametrizations.weight_norm(model[0])


@pytest.mark.parametrize("change", [replace_head, add_layer, add_parametrization])
def test_a_parameter_that_came_later_is_named(change):
    model = make_model()
    step = Bilevel(model, num_batches=3)
    train_group(model, step)
    change(model)
    before = [parameter.grad for parameter in model.parameters()]
    with pytest.raises(
        ValueError, match=r"has a parameter '.*' that it did not have .*: make the .* and the optimizer anew"
    ):
        step.backward(model(torch.rand(5, 3)).square().mean())
    assert all(now.grad is old for now, old in zip(model.parameters(), before, strict=True))
    train_group(model, Bilevel(model, num_batches=3))  # as the message says
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_what_is_frozen_removed_or_left_out_on_purpose_is_no_mistake():
    model = make_model()
    step = Bilevel(model, num_batches=3)
    model.append(nn.Linear(2, 2).requires_grad_(False))
    train_group(model, step)
    model[2] = nn.Identity()
    del model[3]
    train_group(model, step)
    part = Bilevel(model[0].parameters(), num_batches=3)
    model.append(nn.Linear(4, 2))
    train_group(model, part)
