"""Growth of cost: what is measured where, and that the limit counts what it says."""

import pytest

from benchmarks.cost.timing import Spread
from benchmarks.cost.updates import (
    AXES,
    BY_NUMBER,
    BY_PARAMETERS,
    Axis,
    Rates,
    least_seconds,
    least_work,
    measure_growth,
)
from benchmarks.cost.work import Setting, Work


def test_one_thing_differs_along_an_axis():
    by_number, by_size, by_parameters = AXES
    assert {(each.network, each.batch_size) for each in by_number.settings} == {("cifarnet", 16)}
    assert {(each.network, each.num_batches) for each in by_size.settings} == {("cifarnet", 8)}
    assert {(each.num_batches, each.batch_size) for each in by_parameters.settings} == {(8, 16)}


def test_the_made_network_has_the_width_in_its_name():
    narrow, wide = (Work.of(Setting(f"conv{width}", 2, 2)) for width in (2, 4))
    convolutions = [25 * 3 * 2 + 2, 25 * 2 * 2 + 2]
    assert narrow.num_parameters == sum(convolutions) + (128 * 8 + 8) + (8 * 10 + 10)
    assert wide.num_parameters > 2 * narrow.num_parameters
    assert narrow.network()(narrow.batches[0][0]).shape == (2, 10)


def test_the_arithmetic_of_all_passes_and_the_bytes_of_the_rule_are_counted():
    work = Work.of(Setting("conv2", 3, 2))
    operations, num_bytes = least_work(work)
    forward = 2 * (32 * 32 * 25 * 3 * 2 + 16 * 16 * 25 * 2 * 2 + 128 * 8 + 8 * 10)
    first_needs_no_gradient_of_its_images = 2 * 32 * 32 * 25 * 3 * 2
    assert operations == 3 * 2 * (3 * forward - first_needs_no_gradient_of_its_images)
    assert num_bytes == (3 * 3 + 4 * 2 + 5) * work.num_parameters * 4
    assert least_seconds(work, Rates(1e-9, 1e-10)) == pytest.approx(1e-9 * operations + 1e-10 * num_bytes)
    rates = Rates.of_this_machine(1000)
    assert rates.seconds_per_operation > 0
    assert rates.seconds_per_byte > 0


def test_costs_are_told_per_image_in_microseconds():
    told = []
    axis = Axis(BY_NUMBER, (Setting("conv2", 2, 2), Setting("conv2", 4, 2)))

    def seconds_of(setting, contenders):
        return {each.name: Spread(0.002, 0.001, 0.004) for each in contenders}

    growth = measure_growth(axis, seconds_of, told.append)
    assert [point.x for point in growth.points] == [2.0, 4.0]
    assert set(growth.points[0].microseconds) == {
        "SGD, one batch",
        "gradient accumulation",
        "bilevel",
        "bilevel, at once",
    }
    found = growth.points[1].microseconds["bilevel"]
    assert (found.median, found.low, found.high) == pytest.approx((250.0, 125.0, 500.0))
    assert told == [f"growth with {BY_NUMBER}: conv2 {k}x2" for k in (2, 4)]
    (by_parameters,) = measure_growth(Axis(BY_PARAMETERS, axis.settings[:1]), seconds_of, told.append).points
    assert by_parameters.x == pytest.approx(Work.of(axis.settings[0]).num_parameters / 1e6, rel=5e-3)
    assert len(f"{by_parameters.x:.9g}".strip("0.")) <= 3


def test_a_limit_does_not_rise_where_the_machine_was_disturbed(monkeypatch):
    rates = iter([Rates(1e-9, 0.0), Rates(5e-9, 0.0)])
    monkeypatch.setattr(Rates, "of_this_machine", lambda num_parameters: next(rates))
    axis = Axis(BY_NUMBER, (Setting("conv2", 2, 2), Setting("conv2", 4, 2)))
    first, second = measure_growth(axis, lambda *_: {}, lambda _: None).points
    assert first.limit == pytest.approx(second.limit)  # per image as much work, at the better rate
