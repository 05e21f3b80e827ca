"""A run that is interrupted and resumed sees what an unbroken one would have seen."""

import json
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from deepbilevel import MatchedGroups
from tests.sampling.claims import DRAWS, cases, shuffled_labels, take_epochs

LABELS = shuffled_labels([14, 9, 7])


def build(labels: Any = LABELS, **changes: Any) -> MatchedGroups:
    return MatchedGroups(labels, **{"num_batches": 3, "batch_size": 2, "seed": 4, **changes})


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    restored = json.loads(json.dumps(state))
    assert restored == state
    return restored


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("holdout", [None, 0.3])
@pytest.mark.parametrize("draw", DRAWS)
def test_a_run_resumes_from_every_position_of_an_epoch(draw, holdout, epoch):
    unbroken = build(draw=draw, holdout=holdout)
    unbroken.set_epoch(epoch)
    now, *later = ([*unbroken] for _ in range(3))
    for position in range(len(unbroken) + 1):
        interrupted = build(draw=draw, holdout=holdout)
        interrupted.set_epoch(epoch)
        assert list(islice(interrupted, position)) == now[:position]
        resumed = build(draw=draw, holdout=holdout)
        resumed.load_state_dict(through_json(interrupted.state_dict()))
        rest = now[position:]
        assert [[*resumed] for _ in range(2 + bool(rest))] == ([rest] if rest else []) + later


@settings(max_examples=40)
@given(cases())
def test_a_resumed_run_can_be_interrupted_again(case):
    expected = [*case.build()]
    seen, state = [], case.build().state_dict()
    for _ in range(len(expected)):
        groups = case.build()
        groups.load_state_dict(through_json(state))
        seen += islice(groups, 1)
        state = groups.state_dict()
    assert seen == expected
    assert (state["epoch"], state["position"]) == (1, 0)


def test_a_sampler_can_be_taken_back_to_a_state_of_its_own():
    groups = build()
    first = list(groups)
    state = groups.state_dict()
    second, third = list(groups), list(groups)
    groups.load_state_dict(state)
    assert [list(groups), list(groups)] == [second, third]
    assert first not in (second, third)


def test_the_end_of_an_epoch_is_the_start_of_the_next():
    groups = build()
    assert groups.state_dict() == {**groups.state_dict(), "epoch": 0, "position": 0}
    list(groups)
    at_the_end = groups.state_dict()
    assert (at_the_end["epoch"], at_the_end["position"]) == (1, 0)
    groups.set_epoch(1)
    assert groups.state_dict() == at_the_end


def test_a_state_does_not_change_after_it_was_taken():
    groups = build()
    passing = iter(groups)
    next(passing)
    state = groups.state_dict()
    copy = json.loads(json.dumps(state))
    list(passing)
    assert state == copy
    state["settings"]["seed"] = 99
    assert groups.state_dict()["settings"]["seed"] == 4


@pytest.mark.parametrize("number", [np.int64, np.uint8])
def test_settings_given_as_numpy_values_survive_json(number):
    settings = {"num_batches": number(3), "batch_size": number(2), "seed": number(4), "matched": np.bool_(True)}
    state = through_json(MatchedGroups(LABELS, **settings).state_dict())
    assert state == build().state_dict()


@pytest.mark.parametrize("finished", range(6))
def test_groups_fetched_ahead_are_counted_back(finished):
    groups = build()
    now, later = list(build()), take_epochs(build(), 2)[1].reshape(-1, 2).tolist()
    fetched = 3 * finished + 5  # two groups ahead of training, the second of them not complete
    list(islice(groups, fetched))
    resumed = build()
    resumed.load_state_dict(through_json(groups.state_dict(num_groups=np.int64(finished))))
    assert list(resumed) == (now[3 * finished :] or later)


def test_more_groups_than_an_epoch_has_cannot_be_finished():
    groups = build()
    with pytest.raises(ValueError, match=r"num_groups .* at most 5, got 6"):
        groups.state_dict(num_groups=6)
    with pytest.raises(ValueError, match="num_groups must be at least 0, got -1"):
        groups.state_dict(num_groups=-1)


OTHER_SAMPLERS = {
    "labels_checksum": {"labels": LABELS[::-1]},
    "num_batches": {"num_batches": 2},
    "batch_size": {"batch_size": 3},
    "seed": {"seed": 5},
    "matched": {"matched": False},
    "draw": {"draw": "stratified"},
    "on_rare": {"on_rare": "drop"},
    "holdout_checksum": {"holdout": 0.3},
}


@pytest.mark.parametrize("name", OTHER_SAMPLERS)
def test_a_state_of_another_sampler_is_refused_and_changes_nothing(name):
    groups = build()
    list(islice(groups, 4))
    before = groups.state_dict()
    other = build(**OTHER_SAMPLERS[name]).state_dict()
    with pytest.raises(ValueError, match=f"{name}=.* this sampler has .* same labels and settings"):
        groups.load_state_dict(other)
    assert groups.state_dict() == before
    np.testing.assert_array_equal(list(groups), take_epochs(build(), 2)[1].reshape(-1, 2))


def test_a_holdout_of_other_images_is_refused():
    groups = build(holdout=range(8), matched=False)
    with pytest.raises(ValueError, match="holdout_checksum"):
        groups.load_state_dict(build(holdout=range(1, 9), matched=False).state_dict())


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        ({"extra": 1}, ValueError, "keys epoch, position and settings, got .*extra"),
        ({"epoch": -1}, ValueError, "epoch must be at least 0, got -1"),
        ({"epoch": "1"}, TypeError, "epoch must be a whole number, got '1'"),
        ({"position": -3}, ValueError, "position must be at least 0, got -3"),
        ({"position": 10**6}, ValueError, "position 1000000 lies beyond the epoch"),
        ({"position": 1.5}, TypeError, "position must be a whole number, got 1.5"),
        ({"settings": {}}, ValueError, "batch_size=None, this sampler has 2"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage, error, message):
    groups = build()
    list(islice(groups, 4))
    before = groups.state_dict()
    with pytest.raises(error, match=message):
        groups.load_state_dict({**before, **damage})
    assert groups.state_dict() == before


def test_a_state_that_lacks_a_key_is_refused():
    with pytest.raises(ValueError, match="keys epoch, position and settings, got"):
        build().load_state_dict({"epoch": 0, "settings": {}})
