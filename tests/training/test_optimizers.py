"""Optimizers by name: each of torch's either trains or is refused with a reason, before a run begins."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.specs import SpecError, from_plain, spec_id, to_plain
from deepbilevel_lab.training.optimizers import OPTIMIZERS, OptimizerSpec

REFUSED = {
    "LBFGS": "evaluates the loss several times per step",
    "Muon": "takes matrices only",
    "SparseAdam": "takes sparse gradients only",
}
USABLE = [name for name in OPTIMIZERS if name not in REFUSED]
WITH_DECAY = [name for name in USABLE if name != "Rprop"]


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )


def loss_of(model):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 1, 8, 8, generator=generator)
    return F.cross_entropy(model(x), torch.arange(12) % 3)


def test_every_optimizer_of_torch_is_there():
    assert {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad"} <= set(OPTIMIZERS)
    assert set(OPTIMIZERS) == {name for name in torch.optim.__all__ if name[0].isupper()} - {"Optimizer"}


@pytest.mark.parametrize("name", USABLE)
@pytest.mark.parametrize("decay", ["weights", "all"])
def test_every_optimizer_trains_a_network_unless_it_is_refused(name, decay):
    arguments = {"weight_decay": 1e-4} if name in WITH_DECAY else {}
    model = network()
    before = copy.deepcopy(model.state_dict())
    optimizer = OptimizerSpec(name, lr=0.01, arguments=arguments, decay=decay).make(model)
    assert type(optimizer) is OPTIMIZERS[name]
    first = loss_of(model).item()
    for _ in range(10):
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
    assert loss_of(model).item() < first
    for key, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[key]), key


@pytest.mark.parametrize("name", REFUSED)
def test_the_others_are_refused_with_the_reason(name):
    if name not in OPTIMIZERS:
        pytest.skip(f"this version of torch has no {name}")
    with pytest.raises(
        SpecError, match=f"optimizer {name} cannot be used here: it {REFUSED[name]}.*; take SGD or Adam"
    ):
        OptimizerSpec(name, arguments={})


@pytest.mark.parametrize("name", USABLE)
def test_a_name_alone_is_enough(name):
    spec = OptimizerSpec.parse(name)
    assert spec == OptimizerSpec(name) == from_plain(OptimizerSpec, name) == from_plain(OptimizerSpec, {"name": name})
    assert spec.arguments == ({"momentum": 0.9} if name == "SGD" else {})
    assert spec.decay == "weights"


def test_arguments_and_learning_rate_reach_torch():
    settings = {"betas": (0.8, 0.9), "amsgrad": True, "eps": 1e-5}
    (group,) = OptimizerSpec("Adam", 0.003, settings).make(network()).param_groups
    assert group["lr"] == 0.003
    assert tuple(group["betas"]) == (0.8, 0.9)
    assert group["amsgrad"] is True
    assert group["eps"] == 1e-5


def test_only_trainable_parameters_are_handed_over():
    model = network()
    model[0].requires_grad_(False)
    for decay in ("weights", "all"):
        optimizer = OptimizerSpec("SGD", 0.1, {"weight_decay": 0.1}, decay).make(model)
        given = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        assert given == {id(parameter) for parameter in model.parameters() if parameter.requires_grad}


def decayed(optimizer, model):
    """Return the names of parameters on which weight decay falls."""
    found = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    return [name for name, parameter in model.named_parameters() if id(parameter) in found]


@pytest.mark.parametrize("name", WITH_DECAY)
def test_weight_decay_falls_on_weights_alone_unless_it_is_for_all(name):
    model = network()
    optimizer = OptimizerSpec(name, 0.01, {"weight_decay": 0.1}).make(model)
    assert decayed(optimizer, model) == ["0.weight", "4.weight"]
    optimizer = OptimizerSpec(name, 0.01, {"weight_decay": 0.1}, decay="all").make(model)
    assert decayed(optimizer, model) == [name for name, _ in model.named_parameters()]


def test_the_decay_an_optimizer_has_unless_told_spares_biases_too():
    model = network()
    assert decayed(OptimizerSpec("AdamW").make(model), model) == ["0.weight", "4.weight"]
    assert decayed(OptimizerSpec("AdamW", arguments={"weight_decay": 0}).make(model), model) == []
    assert len(decayed(OptimizerSpec("AdamW", decay="all").make(model), model)) == 5


def test_decay_by_hand_shrinks_weights_and_leaves_biases():
    model = nn.Linear(2, 2)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    optimizer = OptimizerSpec("SGD", 0.1, {"weight_decay": 0.5}).make(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.allclose(model.weight, torch.full((2, 2), 0.95))
    assert torch.equal(model.bias, torch.ones(2))


def test_networks_of_flat_parameters_only_can_be_trained():
    model = nn.BatchNorm1d(3)
    optimizer = OptimizerSpec("SGD", 0.1, {"weight_decay": 0.5}).make(model)
    model(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()
    assert decayed(optimizer, model) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Adm"}, "unknown optimizer 'Adm'; did you mean 'Adam'?"),
        ({"name": "SGD", "arguments": {"momentun": 0.9}}, "argument of optimizer SGD 'momentun'; did you mean 'moment"),
        ({"name": "Adam", "arguments": {"beta": 0.9}}, "argument of optimizer Adam 'beta'; did you mean 'betas'?"),
        ({"name": "Adam", "arguments": {"momentum": 0.9}}, "unknown argument of optimizer Adam 'momentum'"),
        ({"arguments": {"lr": 0.1}}, "unknown argument of optimizer SGD 'lr'"),
        ({"arguments": {"foreach": True}}, "unknown argument of optimizer SGD 'foreach'"),
        ({"arguments": {"maximize": True}}, "unknown argument of optimizer SGD 'maximize'"),
        ({"arguments": {"momentum": -1.0}}, r"SGD refuses its arguments {'momentum': -1.0}: Invalid momentum value"),
        ({"arguments": {"momentum": "fast"}}, "SGD refuses its arguments {'momentum': 'fast'}"),
        ({"arguments": {"momentum": 0.9, "dampening": "x"}}, "SGD refuses its arguments"),
        ({"arguments": {"nesterov": True}}, "Nesterov momentum requires a momentum"),
        ({"arguments": {"nesterov": 1}}, "argument nesterov of optimizer SGD must be true or false, got 1"),
        ({"arguments": {"momentum": True}}, "argument momentum of optimizer SGD must be a number, got True"),
        ({"arguments": {"momentum": float("nan")}}, "arguments.momentum must be a finite number.*got nan"),
        ({"arguments": {"momentum": float("inf")}}, "arguments.momentum must be a finite number.*got inf"),
        ({"arguments": {"momentum": None}}, "arguments.momentum must be a finite number.*got None"),
        ({"arguments": {"momentum": torch.ones(())}}, "arguments.momentum must be a finite number.*got tensor"),
        ({"arguments": {"momentum": 10**400}}, "SGD refuses its arguments .*too large"),
        ({"name": "Adam", "arguments": {"betas": [0.9]}}, r"Adam refuses its arguments {'betas': \[0.9\]}"),
        ({"name": "Adam", "arguments": {"betas": 0.9}}, "Adam refuses its arguments {'betas': 0.9}"),
        ({"name": "Adam", "arguments": {"betas": [0.9, 1.5]}}, "Invalid beta parameter at index 1: 1.5"),
        ({"name": "Adam", "arguments": {"betas": {}}}, "Adam refuses its arguments"),
        ({"name": "Adam", "arguments": {"betas": [0.9, float("nan")]}}, "arguments.betas.1 must be a finite number"),
        ({"arguments": [0.9]}, r"arguments must be a table of names and values, got \[0.9\]"),
        ({"lr": 0.0}, "lr must be positive, got 0.0"),
        ({"lr": -1}, "lr must be positive, got -1.0"),
        ({"lr": float("nan")}, "lr must be a number, got nan"),
        ({"lr": True}, "lr must be a number, got True"),
        ({"lr": None}, "lr must be a number, got None"),
        ({"decay": "weight"}, "unknown value of decay 'weight'; did you mean 'weights'?"),
        ({"decay": True}, "decay must be one of weights, all, got True"),
        ({"momentum": 0.9}, "unknown key 'momentum'"),
    ],
)
def test_mistakes_are_refused_by_name_however_the_spec_is_made(given, message):
    with pytest.raises(ValueError, match=message):
        from_plain(OptimizerSpec, given)
    if "momentum" not in given:
        with pytest.raises(ValueError, match=message):
            OptimizerSpec(**given)


@pytest.mark.parametrize("name", USABLE)
def test_checking_a_spec_draws_no_random_numbers(name):
    before = torch.get_rng_state()
    OptimizerSpec(name)
    assert torch.equal(before, torch.get_rng_state())


def test_whole_numbers_are_the_same_arguments_as_floats():
    one, other = (OptimizerSpec("Adam", 1, {"betas": [zero, 0.9]}) for zero in (0, 0.0))
    assert one == other
    assert spec_id(one) == spec_id(other)
    assert len({spec_id(OptimizerSpec("SGD", 0.1, {"momentum": zero})) for zero in (0, 0.0, -0.0)}) == 1


def test_lists_and_tuples_are_the_same_arguments():
    one, other = (OptimizerSpec("Adam", arguments={"betas": betas}) for betas in ((0.9, 0.99), [0.9, 0.99]))
    assert one == other
    assert from_plain(OptimizerSpec, to_plain(one)) == one


def test_a_spec_does_not_change_with_what_it_was_made_of():
    betas = [0.9, 0.99]
    arguments = {"betas": betas}
    spec = OptimizerSpec("Adam", arguments=arguments)
    betas[0] = 0.5
    arguments["eps"] = 1.0
    assert spec.arguments == {"betas": [0.9, 0.99]}
    assert OptimizerSpec().arguments is not OptimizerSpec().arguments


def test_equal_specs_have_equal_hashes():
    assert len({OptimizerSpec("Adam"), OptimizerSpec("Adam", 0.01, {}), OptimizerSpec("SGD")}) == 2
