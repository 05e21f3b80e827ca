"""Taking turns, by a clock that the contenders themselves move."""

import pytest

from benchmarks.cost.timing import Budget, take_turns


class Clock:
    """Stands still but for the work that is done."""

    def __init__(self):
        self.now = 0.0
        self.log = []

    def __call__(self) -> float:
        return self.now

    def worker(self, name, seconds):
        def update():
            self.log.append(name)
            self.now += seconds

        return update


def turns_of(speeds, budget, always=("base",), nearest=(), **others):
    clock = Clock()
    updates = {name: clock.worker(name, seconds) for name, seconds in speeds.items()} | others
    return take_turns(updates, budget, always=always, nearest=nearest, clock=clock), clock.log


def test_slow_contenders_get_fewer_rounds_and_the_base_is_in_all_of_them():
    turns, _ = turns_of({"base": 1, "quick": 0.5, "slow": 4}, Budget(6.0, rounds=10))
    assert {name: len(seconds) for name, seconds in turns.seconds.items()} == {"base": 10, "quick": 10, "slow": 2}
    assert turns.ratios("slow", "base") == [4.0, 4.0]
    assert turns.ratios("quick", "base") == [0.5] * 10


def test_whatever_the_budget_everyone_has_a_round_and_the_base_has_all():
    turns, _ = turns_of({"base": 10, "slow": 50}, Budget(1.0, rounds=3))
    assert {name: len(seconds) for name, seconds in turns.seconds.items()} == {"base": 3, "slow": 1}


def test_the_nearest_is_in_every_round_and_may_fail():
    def fails():
        raise ValueError("broken")

    turns, _ = turns_of(
        {"base": 10, "near": 50, "slow": 50}, Budget(1.0, rounds=3), nearest=("near", "gone", "absent"), gone=fails
    )
    assert {name: len(seconds) for name, seconds in turns.seconds.items()} == {
        "base": 3,
        "near": 3,
        "slow": 1,
        "gone": 0,
    }
    assert set(turns.failures) == {"gone"}


def test_everyone_comes_first_in_turn_after_a_round_that_warms_up():
    _, log = turns_of({"base": 1, "a": 1, "b": 1}, Budget(0.0, rounds=3))
    assert "".join(name[-1] for name in log) == "eab" + "eab" + "e" + "e"  # a and b have spent their budget
    _, log = turns_of({"base": 1, "a": 1, "b": 1}, Budget(9.0, rounds=3))
    assert "".join(name[-1] for name in log) == "eab" + "eab" + "abe" + "bea"


def test_where_updates_are_long_only_the_base_warms_up():
    turns, log = turns_of({"a": 1, "base": 3}, Budget(0.0, rounds=1, warm_up=False))
    assert log == ["base", "a", "base"]
    assert turns.seconds == {"a": {0: 1.0}, "base": {0: 3.0}}


def test_who_fails_at_first_or_later_is_reported_with_the_reason():
    calls = []

    def fails_late():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("no more\nof this")

    def fails():
        raise ValueError("not this network, " + "for many reasons, " * 50)

    turns, _ = turns_of({"base": 1}, Budget(5.0, rounds=5), fails=fails, fails_late=fails_late)
    assert set(turns.failures) == {"fails", "fails_late"}
    assert turns.failures["fails_late"] == "RuntimeError: no more"
    assert turns.failures["fails"].startswith("ValueError: not this network, for many")
    assert len(turns.failures["fails"]) <= 200
    assert turns.seconds["fails"] == turns.seconds["fails_late"] == {}
    assert len(turns.seconds["base"]) == 5
    assert len(calls) == 3


def test_without_the_base_there_is_nothing_to_compare_with():
    def fails():
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        turns_of({"other": 1}, Budget(5.0, rounds=5), base=fails)
