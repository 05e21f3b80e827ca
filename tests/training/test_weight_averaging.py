"""Averaged weights: equal to the average worked out by hand, kept, resumed bit for bit, and BatchNorm's numbers too."""

from itertools import islice

import pytest
import torch
from torch import nn

from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.interruption import Interrupted
from deepbilevel_lab.training.loop import TrainingLoop
from deepbilevel_lab.training.model_file import load_model
from deepbilevel_lab.training.run import train
from tests.training.commands import only_folder, outcome
from tests.training.test_combinations import digits, started
from tests.training.test_packing import same
from tests.training.test_remembering import Stopper

SPEC = digits(weight_averaging=0.8, data__limit=384, epochs=2, evaluate_every=2)


def numbers(model):
    """Return a copy of all that is averaged: parameters, and buffers that hold real numbers."""
    return {name: each.clone() for name, each in model.state_dict().items() if each.is_floating_point()}


def test_the_result_is_the_average_over_steps_in_which_early_steps_fade():
    loop = started(SPEC)
    average = None
    for count, _ in enumerate(islice(loop.run(), 3)):
        now = numbers(loop.parts.model)
        if average is None:
            average = now
            continue
        decay = min(0.8, (1 + count) / (10 + count))
        average = {name: decay * average[name] + (1 - decay) * now[name] for name in now}
    result = numbers(loop.parts.result)
    for name, expected in average.items():
        torch.testing.assert_close(result[name], expected, rtol=1e-5, atol=1e-7)
    assert any(not torch.equal(result[name], now[name]) for name in now)


def test_statistics_of_batch_norm_are_averaged_and_counts_are_not(monkeypatch):
    def small(*_):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))

    monkeypatch.setattr("deepbilevel_lab.training.build.make_model", small)
    loop = started(SPEC)
    list(islice(loop.run(), 3))
    norm, averaged = loop.parts.model[1], loop.parts.result[1]
    assert averaged.num_batches_tracked == norm.num_batches_tracked > 0
    assert not torch.equal(averaged.running_mean, norm.running_mean)
    assert bool((averaged.running_var > 0).all())


def test_the_averaged_network_is_evaluated_and_kept(tmp_path):
    record = train(SPEC, out=tmp_path, data_dir=tmp_path)
    loop = TrainingLoop(build(SPEC, tmp_path))
    for progress in loop.run():
        assert progress is not None
    kept = load_model(only_folder(tmp_path)).network.state_dict()
    assert same(dict(kept), dict(loop.parts.result.state_dict()))
    assert loop.history[-1].test == record.final.test


def test_averages_are_resumed_bit_for_bit(tmp_path):
    train(SPEC, out=tmp_path / "unbroken", data_dir=tmp_path)
    for num_groups in (1, 2):
        with pytest.raises(Interrupted):
            train(SPEC, out=tmp_path / "stopped", data_dir=tmp_path, listener=Stopper(num_groups))
    train(SPEC, out=tmp_path / "stopped", data_dir=tmp_path)
    unbroken, stopped = (outcome(only_folder(tmp_path / name)) for name in ("unbroken", "stopped"))
    assert unbroken["checkpoint"][1]["averaged"]
    assert same(stopped, unbroken)


def test_averaging_changes_nothing_in_training():
    ends = []
    for settings in ({}, {"weight_averaging": 0.9}):
        loop = started(digits(data__limit=384, **settings))
        list(islice(loop.run(), 3))
        ends.append(dict(loop.parts.model.state_dict()))
    assert same(*ends)


@pytest.mark.parametrize("decay", [0, 1, -0.1, 1.5])
def test_an_impossible_decay_is_refused(decay):
    with pytest.raises(SpecError, match=f"weight_averaging must lie between 0 and 1, got {float(decay)}; 0.99"):
        digits(weight_averaging=decay)
