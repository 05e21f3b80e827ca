"""A run that has stopped making sense ends with where, why and what is still good."""

import json
import signal

import pytest
import torch
from safetensors.torch import save_file

from deepbilevel_lab.networks.catalog import build_network
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training.build import build
from deepbilevel_lab.training.checkpoints import Checkpoints
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.loop import DivergedError, TrainingLoop
from tests.training.commands import DIGITS, Command, only_folder, run


def failure(*arguments, out):
    """Run a command that fails, and return its folder and what it says."""
    code, _, errors = run(*DIGITS, *arguments, out=out)
    assert code == 1, errors
    assert "Traceback" not in errors
    record = json.loads((only_folder(out) / "record.json").read_text())
    assert record["status"] == "failed"
    assert f"error: {record['error']}" in errors
    return only_folder(out), errors


@pytest.mark.parametrize("method", ["bilevel", "sgd", "uniform"])
def test_a_learning_rate_beyond_reason_is_stopped(tmp_path, method):
    folder, message = failure("--method", method, "--set", "optimizer.lr=1e30", "--epochs", 3, out=tmp_path)
    assert "step" in message
    assert "No checkpoint was written before" in message
    assert "Try a smaller optimizer.lr" in message
    assert not list(folder.glob("checkpoints/step-*"))


def test_the_last_good_checkpoint_is_named_and_sound(tmp_path):
    command = ("--set", "optimizer.lr=1e12", "--epochs", 3, "--save-seconds", 0)
    folder, message = failure(*command, out=tmp_path)
    step, state = Checkpoints(folder / "checkpoints").load_latest()
    assert f"The last good checkpoint is {folder / 'checkpoints'}/step-{step:08d}.safetensors" in message
    assert f"step {step + 1}" in message
    assert all(bool(torch.isfinite(each).all()) for each in state["model"].values())
    _, again = failure(*command, out=tmp_path)
    assert again.split("The last good")[0] == message.split("The last good")[0]


def test_weights_that_are_not_finite_are_stopped_at_the_first_mini_batch(tmp_path):
    weights = build_network("digit_cnn", num_classes=10).state_dict()
    next(iter(weights.values())).view(-1)[0] = torch.nan
    save_file(weights, tmp_path / "weights.safetensors")
    _, message = failure("--set", f"network.weights={tmp_path / 'weights.safetensors'}", out=tmp_path / "out")
    assert "the loss of mini-batch 0 of step 1 (epoch 1, training images " in message
    assert "is nan" in message


def test_steps_without_learning_are_counted_on_after_a_stop(tmp_path):
    command = ("--set", "optimizer.lr=1e9", "--set", "zeroed_steps=15", "--epochs", 3)
    _, unbroken = failure(*command, out=tmp_path / "unbroken")
    assert (
        "nothing was learned in 15 consecutive steps; in the last, the gradient of mini-batch 0 of step 16" in unbroken
    )
    process = Command(*DIGITS, *command, out=tmp_path / "stopped", waits_after="epoch")
    process.wait_for("waiting")
    process.signal(signal.SIGTERM)
    assert process.end()[0] == 130
    _, stopped = failure(*command, out=tmp_path / "stopped")
    assert stopped.split(". ")[0] == unbroken.split(". ")[0]


def test_a_run_that_ends_without_learning_has_failed_however_short_it_is(tmp_path):
    folder, message = failure("--set", "optimizer.lr=1e9", "--epochs", 3, out=tmp_path)
    assert "nothing was learned in the last" in message
    assert not (folder / "model.safetensors").exists()


def test_parameters_that_are_not_finite_replace_no_good_checkpoint(tmp_path):
    spec = with_value(with_value(default_spec("digits"), "data.limit", 256), "threads", 1)
    loop = TrainingLoop(build(spec, tmp_path))
    loop.check_parameters()
    with torch.no_grad():
        next(loop.parts.model.parameters()).view(-1)[3] = torch.inf
    with pytest.raises(DivergedError, match=r"after step 0 the parameter layers\.0\.weight is not finite"):
        loop.check_parameters()
