"""Runs by the cross-validated gradient: shrinking updates behind the loop, and going on where a run stopped."""

import json
from itertools import islice

import pytest
import torch
from safetensors.torch import load, save

from deepbilevel_lab.training.packing import pack, unpack
from tests.training.test_combinations import digits, started
from tests.training.test_packing import same

SHRINKING = ["gradient", "update"]


def run_of(shrink, optimizer="Adam", **settings):
    method = f'{{"kind": "cross-validated", "shrink": "{shrink}"}}'
    return digits(
        method=method,
        optimizer=optimizer,
        optimizer__lr=0.003,
        data__limit=512,
        epochs=2,
        noise="uniform:0.5",
        **settings,
    )


def through_a_file(state):
    plain, tensors = pack(state)
    return unpack(json.loads(json.dumps(plain)), load(save(tensors)))


def assert_resumed_is_unbroken(spec, stop):
    """Check that a run that goes on after ``stop`` steps, from a file, ends with the bits of one that never stopped."""
    unbroken = started(spec)
    for _ in unbroken.run():
        pass
    broken = started(spec)
    for _ in islice(broken.run(), stop):
        pass
    state = through_a_file(broken.state_dict())  # before another run sets the random numbers of the process
    resumed = started(spec)
    resumed.load_state_dict(state)
    for _ in resumed.run():
        pass
    assert same(resumed.parts.model.state_dict(), unbroken.parts.model.state_dict())
    assert same(resumed.parts.optimizer.state_dict(), unbroken.parts.optimizer.state_dict())
    assert resumed.history == unbroken.history


@pytest.mark.filterwarnings("ignore:Adam divides")  # what shrinks gradients is told so
@pytest.mark.parametrize("shrink", SHRINKING)
@pytest.mark.parametrize("stop", [1, 3])
def test_a_resumed_run_ends_bit_for_bit_as_an_unbroken_one(shrink, stop):
    assert_resumed_is_unbroken(run_of(shrink), stop)


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD"])
def test_the_spec_decides_what_is_shrunk(optimizer):
    """Two runs that differ in nothing else: the first step of one is a part of what the mean gradient would do."""
    moved = {}
    for shrink in SHRINKING:
        loop = started(run_of(shrink, optimizer))
        # In float64: added to parameters of float32, most digits of so short a step are lost.
        loop.parts.model.double().register_forward_pre_hook(lambda module, inputs: (inputs[0].double(),))
        before = torch.cat([p.detach().flatten() for p in loop.parts.model.parameters()])
        next(loop.run())
        moved[shrink] = torch.cat([p.detach().flatten() for p in loop.parts.model.parameters()]) - before
    same_way = torch.sign(moved["gradient"]) * torch.sign(moved["update"]) >= 0
    if optimizer == "SGD":
        torch.testing.assert_close(moved["update"], moved["gradient"], rtol=1e-8, atol=1e-14)
    else:  # all that Adam leaves of a shrunken gradient at first is its sign
        assert same_way.all()
        assert moved["update"].abs().mean() < 0.5 * moved["gradient"].abs().mean()
