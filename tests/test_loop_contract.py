"""Everything a training loop may do around the step, for every rule of the catalog."""

import json
import re
from dataclasses import FrozenInstanceError, fields

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel import GroupStep
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.rules.catalog import RULES
from tests.contracts.loop import STEPS, K, collect, every_forgetting_step, every_step, filled
from tests.models import build, flat_grad, images
from tests.training.test_packing import same


@every_step
def test_the_contract_in_order(make):
    model, batches = build("BatchNorm-like"), images(K)
    step = make(model, num_batches=K)
    for i, (x, y) in enumerate(batches):
        assert step.num_collected == i
        assert not step.full
        step.backward(F.cross_entropy(model(x), y))
        assert all(p.grad is None for p in model.parameters())
    assert step.full
    assert step.fill() is not None
    assert not step.full
    assert step.num_collected == 0
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


@every_step
def test_what_was_in_grad_before_does_not_matter(make):
    batches = images(K)
    fresh, stale = build("CifarNet-like"), build("CifarNet-like")
    for parameter in stale.parameters():
        parameter.grad = torch.full_like(parameter, 1e6)
    assert torch.equal(filled(fresh, make, batches), filled(stale, make, batches))


@every_forgetting_step
def test_a_second_group_is_independent_of_the_first(make):
    model, first, second = build("CifarNet-like"), images(K, seed=1), images(K, seed=2)
    step = make(model, num_batches=K)
    for batches in (first, second):
        collect(model, step, batches)
        step.fill()
    assert torch.equal(flat_grad(model), filled(build("CifarNet-like"), make, second))


@every_step
def test_a_reset_forgets_a_half_collected_group(make):
    model, batches = build("CifarNet-like"), images(K)
    step = make(model, num_batches=K)
    collect(model, step, images(2, seed=9))
    step.reset()
    collect(model, step, batches)
    step.fill()
    assert torch.equal(flat_grad(model), filled(build("CifarNet-like"), make, batches))


@every_step
def test_an_error_in_fill_drops_the_group(make, monkeypatch):
    model, batches = build("CifarNet-like"), images(K)
    step = make(model, num_batches=K)
    collect(model, step, batches)

    def out_of_memory(*arguments):
        raise MemoryError("no room for gradients")

    with monkeypatch.context() as patch:
        patch.setattr("deepbilevel.parameters.put_gradients", out_of_memory)
        with pytest.raises(MemoryError):
            step.fill()
    assert step.num_collected == 0  # sums are used up: filling again would leave nonsense
    step = make(model, num_batches=K) if "momentum" in repr(step).lower() else step
    collect(model, step, batches)
    step.fill()
    assert torch.equal(flat_grad(model), filled(build("CifarNet-like"), make, batches))


@every_step
def test_frozen_parameters_stay_without_gradient_and_do_not_count(make):
    batches, frozen, cut = images(K), build("CifarNet-like"), build("CifarNet-like")
    for parameter in frozen.features.parameters():
        parameter.requires_grad_(False)
    gradient = filled(frozen, make, batches)
    assert all(p.grad is None for p in frozen.features.parameters())
    # The same network, whose head alone is trained because the step is built for nothing else.
    expected = filled(cut.classifier, make, batches, forward=lambda x: cut.classifier(cut.features(x).detach()))
    torch.testing.assert_close(gradient, expected, rtol=0, atol=0)


@every_step
def test_unfreezing_between_groups_is_noticed(make):
    model, batches = build("CifarNet-like"), images(K)
    model.features.requires_grad_(False)
    step = make(model, num_batches=K)
    for trainable in (False, True):
        model.features.requires_grad_(trainable)
        collect(model, step, batches)
        step.fill()
        assert all((p.grad is not None) == trainable for p in model.features.parameters())


@every_step
def test_parameters_no_mini_batch_uses_keep_no_gradient(make):
    model = build("CifarNet-like")
    model.unused = nn.Linear(2, 2).double()
    filled(model, make, images(K))
    assert model.unused.weight.grad is None
    assert model.features[0].weight.grad is not None


class Branching(nn.Module):
    """Uses one of two heads, by the first pixel's sign: gradients differ in which parameters they touch."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(2, 3).double(), nn.Linear(2, 3).double()

    def forward(self, x):
        return self.left(x) if x[0, 0] < 0 else self.right(x)


@every_step
def test_a_gradient_that_is_absent_in_some_mini_batches_counts_as_zero(make):
    torch.manual_seed(0)
    model = Branching()
    x = torch.tensor([[[1.0, 1.0]], [[-1.0, 1.0]], [[1.0, 2.0]], [[-2.0, 1.0]]], dtype=torch.float64)
    torch.manual_seed(0)
    step = make(model, num_batches=4)
    for row in x:
        step.backward(model(row).square().sum())
    step.fill()
    sparse = [p.grad for p in model.parameters()]
    torch.manual_seed(0)  # random weights are then the same
    step = make(model, num_batches=4)
    for row in x:
        step.backward(model(row).square().sum() + 0.0 * sum(p.sum() for p in model.parameters()))
    step.fill()
    for ours, dense in zip(sparse, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(torch.zeros_like(dense) if ours is None else ours, dense)


@every_step
def test_channels_last_changes_nothing(make):
    batches = images(K)
    expected = filled(build("BatchNorm-like"), make, batches)
    model = build("BatchNorm-like").to(memory_format=torch.channels_last)
    gradient = filled(model, make, [(x.to(memory_format=torch.channels_last), y) for x, y in batches])
    torch.testing.assert_close(gradient, expected)
    assert model.stem.weight.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("make", [STEPS["bilevel"], STEPS["bilevel, exact"]])
def test_an_optimizers_param_groups_name_the_parameters(make):
    batches, model = images(K), build("CifarNet-like")
    optimizer = torch.optim.SGD(
        [{"params": model.features.parameters(), "lr": 0.1}, {"params": model.classifier.parameters(), "lr": 0.01}]
    )
    step = make(optimizer.param_groups, num_batches=K)
    collect(model, step, batches)
    step.fill()
    assert torch.equal(flat_grad(model), filled(build("CifarNet-like"), make, batches))


@every_step
def test_clipping_after_fill_sees_an_ordinary_gradient(make):
    model = build("CifarNet-like")
    length = filled(model, make, images(K)).norm()
    assert torch.isclose(nn.utils.clip_grad_norm_(model.parameters(), float(length) / 10), length)
    assert torch.isclose(flat_grad(model).norm(), length / 10, rtol=1e-4)


@every_step
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_models_give_the_same_gradient(make, backend):
    batches = images(K)
    expected = filled(build("BatchNorm-like"), make, batches)
    model = build("BatchNorm-like")
    compiled = torch.compile(model, backend=backend)
    gradient = filled(model, lambda _, **kw: make(compiled, **kw), batches, forward=compiled)
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)


@every_step
def test_state_survives_json_and_is_accepted_by_a_step_with_the_same_settings(make):
    model, batches = build("CifarNet-like"), images(K)
    state = json.loads(json.dumps(make(model, num_batches=K).state_dict()))
    resumed = make(model, num_batches=K)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    collect(model, resumed, batches)
    resumed.fill()
    assert torch.equal(flat_grad(model), filled(build("CifarNet-like"), make, batches))


@every_step
def test_a_state_of_other_settings_is_refused_by_name_with_both_values_and_changes_nothing(make):
    model, step = after_one_group(make)
    state = step.state_dict()
    others = {"num_batches": state | {"num_batches": K + 1}}
    others |= {f"rule.{name}": state | {"rule": state["rule"] | {name: "other"}} for name in state["rule"]}
    for name, other in others.items():
        theirs, ours = (each["rule"].get(name.removeprefix("rule."), each["num_batches"]) for each in (other, state))
        message = f"state was saved with {name}={theirs!r}, this step has {name}={ours!r}; build the step with the same"
        with pytest.raises(ValueError, match=re.escape(message)):
            step.load_state_dict(other)
        assert same(step.state_dict(), state)
    continues_as_if_nothing_had_happened(make, model, step)


@every_step
def test_a_state_with_unknown_or_missing_keys_is_refused_and_changes_nothing(make):
    model, step = after_one_group(make)
    state = step.state_dict()
    for other in ({}, {"mu": 1.0}, state | {"mu": 1.0}, {name: state[name] for name in ("rule", "num_batches")}):
        with pytest.raises(ValueError, match=r"state has the keys \[.*\], expected \['memory', 'num_batches', 'rule"):
            step.load_state_dict(other)
        assert same(step.state_dict(), state)
    for rule in (state["rule"] | {"unheard": 1}, {}):
        with pytest.raises(ValueError, match=r"state has the settings \[.*'num_batches'.*\], expected \[.*'rule.kind'"):
            step.load_state_dict(state | {"rule": rule})
        assert same(step.state_dict(), state)
    with pytest.raises(ValueError, match="unheard"):
        step.load_state_dict(state | {"memory": {"unheard": 1}})
    assert same(step.state_dict(), state)
    continues_as_if_nothing_had_happened(make, model, step)


@every_step
def test_state_is_neither_given_nor_taken_in_mid_group(make):
    model, step = after_one_group(make)
    state = step.state_dict()
    collect(model, step, images(1))
    for call in (step.state_dict, lambda: step.load_state_dict(state)):
        with pytest.raises(RuntimeError, match=r"1 of 4 mini-batches are collected; call it between two groups"):
            call()
    assert step.num_collected == 1
    step.reset()
    assert same(step.state_dict(), state)


def after_one_group(make):
    model = build("CifarNet-like")
    step = make(model, num_batches=K)
    collect(model, step, images(K, seed=1))
    step.fill()
    return model, step


def continues_as_if_nothing_had_happened(make, model, step):
    untouched, other = after_one_group(make)
    for each, its_model in ((step, model), (other, untouched)):
        collect(its_model, each, images(K, seed=2))
        each.fill()
    assert torch.equal(flat_grad(model), flat_grad(untouched))


@every_step
def test_settings_are_for_reading(make):
    step = make(build("CifarNet-like"), num_batches=K)
    assert step.num_batches == K
    for name, value in (("num_batches", 5), ("rule", step.rule)):
        with pytest.raises(AttributeError):
            setattr(step, name, value)
    for each in fields(step.rule):
        with pytest.raises(FrozenInstanceError):
            setattr(step.rule, each.name, getattr(step.rule, each.name))


def test_the_battery_has_every_rule_of_the_catalog():
    model = build("CifarNet-like")
    battery = {make(model, num_batches=K).rule.kind for make in STEPS.values()}
    assert battery == set(RULES) - {"sgd"}  # which is "average", with the whole group as one batch


@pytest.mark.parametrize("rule", [BilevelRule, "bilevel", None])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(TypeError, match=r"rule must be a rule, got .*; make one from its class, as in BilevelRule\("):
        GroupStep(nn.Linear(1, 1), rule, num_batches=2)
