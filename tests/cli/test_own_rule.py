"""A rule of one's own, in a module of one's own, named on the command line: trained, resumed and shown like any other.

docs/own-rules.md has a rule without settings (``tests/test_adding_a_rule.py``); this one has a setting and a memory.
"""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.training.commands import Command, only_folder, outcome
from tests.training.test_packing import same

KIND = "somebody.rules:Smoothed"
RULE = '''
"""The mean of the mini-batches, averaged over groups."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from deepbilevel.checks import check_number
from deepbilevel.contract import Accumulator, Outcome, Report, Rule


@dataclass(frozen=True)
class Smoothed(Rule[Report]):
    kind: ClassVar[str] = "somebody.rules:Smoothed"
    description: ClassVar[str] = "the mean, averaged over groups"
    tolerates_bad_batches: ClassVar[bool] = False

    keep: float = 0.5

    def __post_init__(self):
        check_number("keep", self.keep, 0, 1, remedy="0.5 is usual")

    def start(self, layout, num_batches, memory):
        return _Mean(self, layout, num_batches, memory)

    def check_memory(self, memory, layout):
        return memory


class _Mean(Accumulator[Report]):
    def __init__(self, rule, layout, num_batches, memory):
        super().__init__()
        self._rule, self._blocks, self._num_batches, self._memory = rule, layout.model, num_batches, memory
        self._sum = {}

    def add(self, gradients, place):
        self.rows[place] = self._blocks.sq_norms(gradients)
        for position, gradient in gradients.items():
            self._sum[position] = self._sum.get(position, 0) + gradient / self._num_batches

    def finish(self, losses):
        before = self._memory.get("mean", self._sum)
        mean = {each: torch.lerp(self._sum[each], before[each], self._rule.keep) for each in self._sum}
        self._memory["mean"] = {each: gradient.clone() for each, gradient in mean.items()}
        weights = torch.full((self._num_batches,), 1 / self._num_batches)
        return Outcome(mean, Report(weights=weights, losses=losses, finite=torch.isfinite(self.columns()[0])))
'''
SETTINGS = ["--data", "digits", "--noise", "uniform:0.5", "--epochs", "3", "--limit", "256", "--threads", "1", "--json"]
COMMAND = ["train", *SETTINGS, "--method", KIND, "--set", "method.keep=0.25"]


@pytest.fixture
def environment(tmp_path):
    module = tmp_path / "own" / "somebody" / "rules.py"
    module.parent.mkdir(parents=True)
    (module.parent / "__init__.py").touch()
    module.write_text(RULE)
    paths = os.pathsep.join(filter(None, (str(tmp_path / "own"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths, "COLUMNS": "250"}


def start(*arguments, environment):
    line = [sys.executable, "-m", "deepbilevel_lab", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run(*arguments, environment):
    process = start(*arguments, environment=environment)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def interrupted_after_an_epoch(out):
    process = Command(*COMMAND[1:], out=out, waits_after="epoch")
    process.wait_for("waiting")
    process.signal(signal.SIGINT)
    code, _, errors = process.end()
    assert code == 130, errors
    return only_folder(out)


def test_it_trains_resumes_and_is_shown(tmp_path, environment, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "own")  # a forked process has its paths from here, not from PYTHONPATH
    run(*COMMAND, "--out", tmp_path / "unbroken", environment=environment)
    unbroken = only_folder(tmp_path / "unbroken")
    stopped = interrupted_after_an_epoch(tmp_path / "stopped")
    assert stopped.name == unbroken.name
    assert stopped.name.startswith("digits-digit-cnn-somebody.rules-Smoothed-uniform-0.5-")
    assert "resuming at epoch" in run(*COMMAND, "--out", tmp_path / "stopped", environment=environment)
    assert same(outcome(stopped), outcome(unbroken))

    # Listing needs no module of anybody's.
    shown = run("runs", "show", unbroken, environment=dict(os.environ) | {"COLUMNS": "250"})
    assert KIND in shown
    assert "method.keep" in shown
    assert "0.25" in shown
    [listed] = json.loads(run("runs", "list", "--out", unbroken.parent, "--json", environment=dict(os.environ)))
    assert (listed["status"], listed["epoch"]) == ("done", 3)


def test_without_its_module_the_command_says_where_it_looked(tmp_path):
    process = start(*COMMAND, "--out", tmp_path / "runs", environment=dict(os.environ))
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "error: method: rule 'somebody.rules:Smoothed': No module named 'somebody'" in errors
    assert "PYTHONPATH" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "runs").exists()


def test_its_settings_are_checked_by_itself(tmp_path, environment):
    process = start(*COMMAND, "--set", "method.keep=2", "--out", tmp_path / "runs", environment=environment)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "method: keep must lie in 0 .. 1, got 2.0; 0.5 is usual" in errors


@pytest.mark.slow
def test_seeds_side_by_side_find_it_too(tmp_path, environment):
    run(*COMMAND, "--seeds", "0-1", "--jobs", "2", "--out", tmp_path / "runs", environment=environment)
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/record.json")]
    assert [(each["status"], each["spec"]["method"]["kind"]) for each in records] == [("done", KIND)] * 2
