"""CIFAR-10 itself, where it is at hand: killed at some moment, the run ends as if it had not been."""

import os
import random
from pathlib import Path

import pytest

from tests.training.commands import Command, only_folder, outcome, run_to_the_end
from tests.training.test_packing import same

pytestmark = [pytest.mark.data, pytest.mark.slow]
ROOT = Path(os.environ.get("DEEPBILEVEL_DATA", "data"))
COMMAND = (
    *("--data", "cifar10", "--network", "cifarnet", "--noise", "uniform:0.5", "--method", "bilevel"),
    *("--epochs", 2, "--limit", 2000, "--set", "data.test_limit=1000"),
)


@pytest.mark.skipif(
    not (ROOT / "cifar-10-batches-py").exists(),
    reason="CIFAR-10 is not there; fetch it (deepbilevel data fetch cifar10) and set DEEPBILEVEL_DATA",
)
def test_a_run_on_cifar10_killed_once_ends_as_an_unbroken_one(tmp_path):
    command = (*COMMAND, "--data-dir", ROOT, "--json")
    unbroken = run_to_the_end(*command, out=tmp_path / "unbroken")
    process = Command(*command, "--save-seconds", 1, out=tmp_path / "killed")
    process.wait_for("started")
    delay = random.Random(2018).uniform(2, 10)
    process.killed_after(delay)
    folder = run_to_the_end(*command, out=tmp_path / "killed")
    assert folder == only_folder(tmp_path / "killed")
    assert same(outcome(folder), outcome(unbroken)), f"killed after {delay}"
