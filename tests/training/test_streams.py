"""Random numbers go on from where they were saved, bit for bit, also by way of a checkpoint's JSON."""

import json
import random

import numpy as np
import pytest
import torch

from deepbilevel_lab.training.packing import pack, unpack
from deepbilevel_lab.training.streams import restore_streams, save_streams, seed_streams


def draw():
    """Draw from every stream, in all the ways that leave something behind."""
    return [
        *(random.random(), random.gauss(0, 1), random.getrandbits(70)),
        *(np.random.rand(), np.random.randn(), int(np.random.randint(1000))),
        *(torch.rand(()).item(), torch.randn(()).item(), *torch.randperm(5).tolist()),
    ]


@pytest.fixture(autouse=True)
def _others_keep_their_numbers():
    state = random.getstate(), np.random.get_state()
    yield
    random.setstate(state[0])
    np.random.set_state(state[1])


def through_json(state):
    plain, tensors = pack(state)
    return unpack(json.loads(json.dumps(plain, allow_nan=False)), tensors)


@pytest.mark.parametrize("travel", [lambda state: state, through_json], ids=["as they are", "through JSON"])
@pytest.mark.parametrize("drawn_before", [0, 1, 2, 700])  # an odd number of gaussians leaves the second one waiting
def test_restored_streams_go_on_as_if_nothing_had_happened(travel, drawn_before):
    seed_streams(5)
    for _ in range(drawn_before):
        draw()
    state = save_streams()
    expected = [draw() for _ in range(5)]
    seed_streams(99)
    draw()
    restore_streams(travel(state))
    assert [draw() for _ in range(5)] == expected


def test_a_gaussian_that_waits_is_saved_in_every_stream():
    for stream in (lambda: random.gauss(0, 1), np.random.randn, lambda: torch.randn(()).item()):
        seed_streams(1)
        stream()
        state = through_json(save_streams())
        expected = stream(), stream()
        seed_streams(2)
        restore_streams(state)
        assert (stream(), stream()) == expected


def test_saving_draws_nothing_and_later_draws_do_not_change_what_was_saved():
    seed_streams(3)
    state = save_streams()
    first = draw()
    restore_streams(state)
    assert draw() == first
    restore_streams(state)
    save_streams()
    assert draw() == first


def test_a_seed_starts_every_stream_and_another_seed_others():
    drawn = []
    for seed in (0, 0, 1, 2**32 - 1):
        seed_streams(seed)
        drawn.append(draw())
    assert drawn[0] == drawn[1]
    for other in drawn[2:]:
        assert all(one != two for one, two in zip(drawn[0][:5], other[:5], strict=True))


def test_streams_of_devices_that_are_not_there_are_passed_over():
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has a device, whose stream is restored")
    seed_streams(4)
    state = save_streams()
    assert set(state) == {"python", "numpy", "torch"}
    foreign = torch.zeros(16, dtype=torch.uint8)
    expected = draw()
    restore_streams({**state, "cuda": [foreign], "mps": foreign})
    assert draw() == expected
