"""Schedules: the factors by hand, those of the paper first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.specs import SpecError, from_plain, to_plain
from deepbilevel_lab.training.schedules import Constant, Cosine, Exponential, Linear, Phases, ScheduleSpec, Steps

EVERY_SCHEDULE = [Constant(), Exponential(), Steps(), Linear(), Cosine(), Phases()]


@pytest.mark.parametrize(
    ("schedule", "num_epochs", "factors"),
    [
        (Constant(), 10, {0: 1, 5.5: 1, 9.99: 1}),
        (Exponential(), 100, {0: 1, 0.99: 1, 1: 0.95, 2: 0.9025, 99: 0.95**99}),
        (Exponential(factor_per_epoch=0.5), 3, {0: 1, 1.5: 0.5, 2.9: 0.25}),
        (Steps(), 200, {0: 1, 99.99: 1, 100: 0.1, 149.99: 0.1, 150: 0.01, 199.99: 0.01}),
        (Steps(at=(0.5,)), 10, {4.99: 1, 5: 0.1}),
        (Steps(at=(0.75, 0.5), drop=0.5), 4, {1.9: 1, 2: 0.5, 3: 0.25}),
        (Steps(), 5, {2: 1, 2.5: 1, 3: 0.1, 3.75: 0.1, 4: 0.01}),  # within an epoch nothing changes
        (Steps(at=()), 4, {0: 1, 3: 1}),
        (Cosine(), 100, {0: 1, 25: (2 + 2**0.5) / 4, 50: 0.5, 100: 0, 101: 0}),
        (Cosine(0.2), 100, {0: 0, 5: 0.25, 20: 1, 60: 0.5, 100: 0}),
        (Linear(), 1000, {0: 1, 250: 0.75, 500.5: 0.4995, 999.9: 0.0001, 1000: 0, 1001: 0}),
        (Linear(), 1, {0: 1, 0.25: 0.75}),
        (Phases(count=2, span=10.0), 4, {1.99: 1, 2: 0.1, 4: 0.1}),  # 4 is the very end
        (Phases(), 3, {0: 1, 1: 250**-0.25, 2: 250**-0.75}),  # fewer epochs than phases
    ],
)
def test_factors_by_hand(schedule, num_epochs, factors):
    for epoch, factor in factors.items():
        assert schedule.factor(epoch, num_epochs) == pytest.approx(factor, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("num_epochs", [90, 60, 5])
def test_the_five_phases_of_the_paper_take_a_hundredth_down_250_fold(num_epochs):
    length = num_epochs // 5
    rates = [0.01 * Phases().factor(epoch, num_epochs) for epoch in range(num_epochs)]
    for phase in range(5):
        assert rates[phase * length : (phase + 1) * length] == pytest.approx([0.01 * 250 ** (-phase / 4)] * length)
    assert rates[-1] == pytest.approx(0.00004)


@given(st.integers(1, 99), st.integers(1, 40))
def test_a_drop_comes_with_its_epoch_however_the_share_is_rounded(percent, hundreds):
    # 0.55 * 100 is 55.00000000000001.
    epoch = percent * hundreds
    schedule = Steps(at=(percent / 100,))
    assert schedule.factor(epoch, 100 * hundreds) == 0.1
    assert schedule.factor(epoch - 1, 100 * hundreds) == 1
    assert schedule.factor(epoch - 0.001, 100 * hundreds) == 1


@pytest.mark.parametrize("schedule", EVERY_SCHEDULE, ids=lambda schedule: schedule.kind)
@given(num_epochs=st.integers(1, 300), places=st.lists(st.floats(0, 1), min_size=2, max_size=2).map(sorted))
def test_the_factor_starts_at_one_and_never_rises(schedule, num_epochs, places):
    early, late = (schedule.factor(place * num_epochs, num_epochs) for place in places)
    assert schedule.factor(0, num_epochs) == 1
    assert 1 >= early >= late >= 0


@pytest.mark.parametrize("schedule", EVERY_SCHEDULE, ids=lambda schedule: schedule.kind)
def test_every_schedule_is_known_by_its_kind(schedule):
    assert from_plain(ScheduleSpec, schedule.kind) == schedule
    assert from_plain(ScheduleSpec, to_plain(schedule)) == schedule


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Exponential(factor_per_epoch=0), "factor_per_epoch must be positive, got 0.0"),
        (lambda: Exponential(factor_per_epoch=float("nan")), "factor_per_epoch must be a number, got nan"),
        (lambda: Cosine(warmup=1.0), "warmup must be a share of the epochs from 0 to less than 1, got 1.0"),
        (lambda: Steps(drop=-0.1), "drop must be positive, got -0.1"),
        (lambda: Steps(at=(0.5, 1.0)), r"at must hold shares of the epochs between 0 and 1, got \[0.5, 1.0\]"),
        (lambda: Steps(at=(0.0,)), r"at must hold shares of the epochs between 0 and 1, got \[0.0\]"),
        (lambda: Steps(at=0.5), "at must be a list, got 0.5"),
        (lambda: Steps(at=(0.5, True)), "at.1 must be a number, got True"),
        (lambda: Phases(count=1), "count must be at least 2 phases, got 1; one phase is the schedule 'constant'"),
        (lambda: Phases(count=5.0), "count must be a whole number, got 5.0"),
        (lambda: Phases(span=0.0), "span must be positive, got 0.0"),
    ],
)
def test_impossible_schedules_are_refused_by_name(make, message):
    with pytest.raises(SpecError, match=message):
        make()
