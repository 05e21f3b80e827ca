"""Memory and training runs, measured small."""

import pytest
import torch

from deepbilevel import Bilevel
from deepbilevel_lab.bench.contenders import AT_ONCE, BILEVEL, FILTERING, OURS, PLAIN, Contender
from deepbilevel_lab.bench.counted_updates import ALLOCATED, MOVED, OPERATIONS, count_updates
from deepbilevel_lab.bench.measuring import compare_updates
from deepbilevel_lab.bench.memory import ONE_MINI_BATCH, peaks_in_models
from deepbilevel_lab.bench.timing import Budget
from deepbilevel_lab.bench.training_share import PASSES, measure_training
from deepbilevel_lab.bench.work import Setting
from deepbilevel_lab.training import build
from deepbilevel_lab.training.run import Listener


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
    pytest.importorskip("gradient_agreement_filtering", reason="pip install 'deepbilevel[bench]'")
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


def test_a_training_run_is_taken_apart_and_left_as_it_was():
    places = ((Bilevel, "backward"), (Bilevel, "fill"), (torch.Tensor, "backward"), (build, "load_data"))
    before = [getattr(owner, name) for owner, name in places]
    share = measure_training(256, 2, Listener())
    assert [getattr(owner, name) for owner, name in places] == before
    assert "backward" not in vars(Bilevel)
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
