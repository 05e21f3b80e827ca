"""A spec names a rule whose module writes a file when imported: no command imports it unless its user names it."""

import json
import os
import subprocess
import sys

import pytest

from deepbilevel.rules.average import Uniform
from deepbilevel_lab.specs import SpecError, canonical_json, from_plain, spec_id, to_plain, with_value
from deepbilevel_lab.training import RunSpec, default_spec, load_model, load_spec, train
from deepbilevel_lab.training.own_rules import RuleNotLoaded
from tests.cli.trained import run_in_process

MODULE = "strangers_rules"
KIND = f"{MODULE}:Strange"
CODE = f'''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deepbilevel.rules.average import Uniform

with open(Path(__file__).with_suffix(".ran"), "a") as ran:
    ran.write("imported\\n")


@dataclass(frozen=True)
class Strange(Uniform):
    kind: ClassVar[str] = "{KIND}"
    strength: float = 1.0
'''
TINY = [
    *("--data", "digits", "--limit", "64", "--epochs", "2", "--threads", "1", "--quiet", "--set", "data.test_limit=20"),
    *("--set", "group.num_batches=4", "--set", "group.batch_size=4"),
]


class World:
    """A folder with the module, which can be imported from everywhere, and a run that was trained by its rule."""

    def __init__(self, folder):
        self.folder, self.runs = folder, folder / "runs"
        (folder / f"{MODULE}.py").write_text(CODE)
        paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        self.environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "250"}

    def run(self, *arguments, start=("-m", "deepbilevel_lab")):
        command = [sys.executable, *start, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, check=False)

    def times_imported(self):
        """Return how often the module was imported since this was last asked."""
        ran = self.folder / f"{MODULE}.ran"
        count = len(ran.read_text().splitlines()) if ran.exists() else 0
        ran.unlink(missing_ok=True)
        return count


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    world = World(tmp_path_factory.mktemp("strange"))
    named = ["--method", KIND, "--set", "method.strength=2", "--set", "audit=true"]
    done = world.run("train", *TINY, *named, "--out", world.runs)
    assert done.returncode == 0, done.stderr
    assert world.times_imported() == 1
    return world


@pytest.fixture
def run(world, monkeypatch):
    """Return the run's folder; its module could be imported by this process too, and never was."""
    monkeypatch.syspath_prepend(str(world.folder))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    world.times_imported()
    [run] = world.runs.glob("*strangers-rules-Strange-*")
    yield run
    assert world.times_imported() == 0
    assert MODULE not in sys.modules


def test_what_was_trained_by_it_is_used_and_shown_without_it(run, tmp_path):
    evaluated = run_in_process("evaluate", run, "--json")
    assert evaluated.exit_code == 0, evaluated.output
    assert json.loads(evaluated.output)["id"] == json.loads((run / "record.json").read_text())["id"]
    for command in (
        ("evaluate", run / "model.safetensors"),
        ("runs", "list", "--out", run.parent),
        ("runs", "show", run),
        ("runs", "show", run, "--json"),
        ("runs", "compare", run, run),
        ("audit", run, "--out", tmp_path / "audit"),
        ("report", run.parent, "--out", tmp_path / "report"),
        ("compare", "--spec", run / "spec.json", "--methods", "sgd", "--seeds", "0", "--dry-run"),
        ("train", "--spec", run / "spec.json", "--method", "sgd", "--out", tmp_path / "other", "--quiet"),
        ("train", *TINY, "--set", f"network.weights=run:{run.name[-10:]}", "--method", "sgd", "--out", run.parent),
    ):
        done = run_in_process(*command)
        assert done.exit_code == 0, (command, done.output)


def test_nothing_is_trained_by_it_where_nobody_names_it(run, tmp_path):
    spec = run / "spec.json"
    for command in (
        ("train", "--spec", spec),
        ("train", "--spec", spec, "--dry-run"),
        ("train", "--spec", spec, "--seeds", "0-1"),
        ("train", "--spec", spec, "--set", "method.strength=3"),
        ("train", "--spec", spec, "--method", "elsewhere:Rule"),
    ):
        done = run_in_process(*command, "--out", tmp_path / "runs")
        assert done.exit_code == 2, done.output
        [line] = done.stderr.splitlines()
        assert line.startswith("error: ")
        assert f"add --method {KIND}" in line or "No module named 'elsewhere'" in line
    assert not (tmp_path / "runs").exists()


def test_nor_from_python(run, tmp_path):
    spec = load_spec(run / "spec.json")
    assert isinstance(spec.method, RuleNotLoaded)
    with pytest.raises(SpecError, match=f"import {MODULE} first"):
        train(spec, out=tmp_path / "runs", data_dir=tmp_path)
    assert load_model(run).spec.method == spec.method
    assert not (tmp_path / "runs").exists()
    # What stands for it is written down as it was read, and can be replaced.
    assert run.name.endswith(spec.id)
    assert spec_id(from_plain(RunSpec, json.loads(canonical_json(spec)))) == spec.id
    assert isinstance(with_value(spec, "method", "uniform").method, Uniform)


@pytest.mark.parametrize(
    "kind", [":", ":X", "a:", ".a:X", "..:X", "a..b:X", "os:path:X", "json:loads", "deepbilevel:Bilevel", "\0:X"]
)
def test_names_that_no_module_can_have_stand_for_nothing(kind):
    plain = {**to_plain(default_spec("digits")), "method": {"kind": kind, "a": None}}
    assert from_plain(RunSpec, plain).method == RuleNotLoaded(kind, '{"a": null}')
    done = run_in_process("train", *TINY, "--method", kind)
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: method: rule ")


@pytest.mark.parametrize("settings", ['{"a": NaN}', '{"a": 1e999}'])
def test_settings_that_no_file_could_hold_are_refused(settings):
    with pytest.raises(SpecError, match="the settings of a:B cannot be"):
        from_plain(RunSpec, {**to_plain(default_spec("digits")), "method": {"kind": "a:B", **json.loads(settings)}})


@pytest.mark.slow
def test_processes_of_the_command_may_use_what_it_names(world, tmp_path):
    world.times_imported()
    named = ["--method", KIND, "--out", tmp_path / "runs"]
    for command, imports in (
        (("train", *TINY, *named, "--seeds", "0-1", "--jobs", "2"), 3),
        (("compare", *TINY, "--methods", f"sgd[method={KIND}]", "--seeds", "2", "--out", tmp_path / "runs"), 2),
    ):
        done = world.run(*command)
        assert done.returncode == 0, done.stderr
        assert world.times_imported() == imports
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/record.json")]
    assert [(each["status"], each["spec"]["method"]["kind"]) for each in records] == [("done", KIND)] * 3


@pytest.mark.slow
def test_so_may_those_that_torchrun_starts(world, tmp_path):
    world.times_imported()
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "deepbilevel_lab")
    done = world.run("train", *TINY, "--method", KIND, "--out", tmp_path / "runs", start=launch)
    assert done.returncode == 0, done.stderr
    assert world.times_imported() == 2
    [run] = (tmp_path / "runs").iterdir()
    refused = world.run("train", "--spec", run / "spec.json", "--out", tmp_path / "other", start=launch)
    assert refused.returncode != 0
    assert refused.stderr.count(f"add --method {KIND}") == 1
    assert world.times_imported() == 0
