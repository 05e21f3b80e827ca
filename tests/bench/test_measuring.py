"""Memory and training runs, measured small."""

import pytest

from benchmarks.cost.contenders import AT_ONCE, BILEVEL, FILTERING, OURS, PLAIN, Contender
from benchmarks.cost.counting import ALLOCATED, MOVED, ONE_MINI_BATCH, OPERATIONS, count_updates, peaks_in_models
from benchmarks.cost.timing import Budget
from benchmarks.cost.training import PASSES, Meter, Stopwatch, measure_training
from benchmarks.cost.updates import compare_updates
from benchmarks.cost.work import Setting
from deepbilevel_lab.data.cifar import CIFAR10
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training import default_spec, train
from deepbilevel_lab.training.run import Listener
from deepbilevel_paper.made_data import write_cifar


def test_bilevel_needs_two_model_sized_buffers_more_than_sgd_for_any_number_of_mini_batches():
    few, many = (peaks_in_models(Setting("digit_cnn", k, 4)) for k in (8, 32))
    assert few["bilevel"] == pytest.approx(few[ONE_MINI_BATCH] + 2, abs=0.05)
    for name in ("bilevel", "cross-validated", "gradient accumulation"):
        assert many[name] == pytest.approx(few[name], abs=0.05)
    assert many["bilevel, exact"] == pytest.approx(few["bilevel, exact"] + 24, abs=0.1)
    assert many["SGD, one batch"] > few["SGD, one batch"] + 5


def test_counted_is_what_comes_on_top_of_accumulation():
    counted = count_updates(Setting("digit_cnn", 8, 2))
    assert {BILEVEL, AT_ONCE} <= set(counted) <= {BILEVEL, AT_ONCE, FILTERING}
    ours = counted[BILEVEL]
    # As pinned by test_counted_work.py: 46 model sizes are moved for 8 mini-batches, of which accumulation moves 21.
    assert ours[MOVED] == pytest.approx(25, abs=1)
    assert ours[ALLOCATED] < 1
    assert counted[AT_ONCE][OPERATIONS] < ours[OPERATIONS]


def test_agreement_filtering_does_more_than_bilevel():
    pytest.importorskip("gradient_agreement_filtering", reason="pip install -e '.[bench]'")
    counted = count_updates(Setting("digit_cnn", 8, 2))
    for kind in (OPERATIONS, MOVED, ALLOCATED):
        assert counted[FILTERING][kind] > counted[BILEVEL][kind]


def test_a_peer_that_cannot_be_prepared_or_run_has_a_row_with_the_reason():
    def refuse(work):
        raise ValueError(f"{work.setting.network} is not for me")

    def fail(work):
        return lambda: 1 / 0

    strangers = (Contender("choosy", "peer", refuse), Contender("broken", "peer", fail))
    rows = compare_updates(Setting("digit_cnn", 3, 2), Budget(0.0, rounds=3), (*PLAIN, *OURS, *strangers))
    assert {row.name: row.failed for row in rows if row.failed is not None} == {
        "choosy": "ValueError: digit_cnn is not for me",
        "broken": "ZeroDivisionError: division by zero",
    }
    sgd, accumulation, bilevel, at_once = rows[:4]
    assert sgd.to_sgd.median == accumulation.to_accumulation.median == 1
    assert sgd.rounds == accumulation.rounds == bilevel.rounds == at_once.rounds == 3
    assert bilevel.to_sgd.low <= bilevel.to_sgd.median <= bilevel.to_sgd.high


def test_ours_may_not_be_refused_silently():
    def refuse(work):
        raise ValueError("cannot")

    with pytest.raises(ValueError, match="cannot"):
        compare_updates(Setting("digit_cnn", 3, 2), Budget(0.0, rounds=3), (*PLAIN, Contender("ours", "ours", refuse)))


def test_a_training_run_is_taken_apart():
    share = measure_training(256, 2, Listener())
    parts = {
        "rule",
        "everything else",
        "optimizer",
        "sampler",
        "augmentation",
        "log of steps",
        "progress",
        "checkpoints",
    }
    assert set(share.shares) == {PASSES, *parts}
    assert share.shares[PASSES] == 1
    assert share.num_steps == 2  # of the second epoch
    assert share.images_per_second > 0


def test_a_run_whose_time_is_kept_trains_as_any_other(tmp_path):
    write_cifar(tmp_path, CIFAR10, per_batch=52)
    spec = default_spec("cifar10", "cifarnet")
    for key, value in {"epochs": 2, "data.limit": 256, "data.test_limit": 10, "threads": 1, "device": "cpu"}.items():
        spec = with_value(spec, key, value)
    meter = Meter(Stopwatch(), Listener(), 2)
    plain, watched = (
        train(spec, out=tmp_path / name, data_dir=tmp_path, listener=listener)
        for name, listener in (("plain", None), ("watched", meter))
    )
    assert watched.history == plain.history


def test_time_is_charged_to_whoever_is_innermost():
    now = 0.0
    stopwatch = Stopwatch(lambda: now)
    stopwatch.running = True
    with stopwatch.charging("outer"):
        now += 1
        with stopwatch.charging("inner"):
            now += 2
        now += 4
    now += 8
    for _ in stopwatch.charged("items", range(3)):
        now += 16  # not the maker's time
    stopwatch.running = False
    with stopwatch.charging("outer"):
        now += 32
    assert stopwatch.seconds == {"outer": 5, "inner": 2, "items": 0, "everything else": 8 + 3 * 16}
