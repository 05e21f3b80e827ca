"""A method that remembers between groups: a real run, stopped and resumed, ends bit for bit as an unbroken one."""

import signal

import pytest
import torch

from deepbilevel_lab.training.interruption import Interrupted
from deepbilevel_lab.training.run import Listener, train
from tests.training.commands import only_folder, outcome
from tests.training.test_combinations import digits
from tests.training.test_packing import same

RULES = {
    "average": {"kind": "momentum"},
    "signal": {"kind": "cross-validated", "strength": 0.125, "momentum": 0.9},
}


class Stopper(Listener):
    """Asks a run to end, by a real signal, after so many groups."""

    def __init__(self, num_groups):
        self.left = num_groups

    def progress(self, progress, loop):
        self.left -= progress.stage == "train"
        if self.left == 0:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("average", RULES)
def test_averages_survive_the_checkpoints_of_a_real_run(average, tmp_path):
    spec = digits(method=RULES[average], data__limit=256, epochs=2, evaluate_every=2)
    train(spec, out=tmp_path / "unbroken", data_dir=tmp_path)
    for num_groups in (1, 2):  # in the middle of the first epoch, and again
        with pytest.raises(Interrupted):
            train(spec, out=tmp_path / "stopped", data_dir=tmp_path, listener=Stopper(num_groups))
    train(spec, out=tmp_path / "stopped", data_dir=tmp_path)
    unbroken, stopped = (outcome(only_folder(tmp_path / name)) for name in ("unbroken", "stopped"))
    memory = unbroken["checkpoint"][1]["method"]["memory"]
    assert memory[average]
    assert all(bool(torch.isfinite(each).all()) for each in memory[average].values())
    assert same(stopped, unbroken)
