"""`deepbilevel doctor` as its user runs it."""

import json
import os
import re
import shutil
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from deepbilevel_lab.cli import doctor as command
from deepbilevel_lab.data.cifar import CIFAR10
from deepbilevel_lab.training import defaults
from tests.cli.trained import run_command, run_in_process
from tests.data.layouts import write_cifar, write_clothing1m, write_imagenet, write_voc


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def doctor(*arguments):
    result = run_in_process("doctor", *arguments, "--json")
    content = json.loads(result.stdout)
    assert result.exit_code == (1 if content["problems"] else 0)
    return content


def test_a_sound_machine_is_well(tmp_path):
    result = run_command("doctor", "--data-dir", tmp_path, cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.rstrip().endswith("all well")
    assert metadata.version("torch") in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_json_tells_what_a_run_gets(monkeypatch):
    monkeypatch.setattr(defaults, "usual_threads", lambda: 3)
    facts = doctor()["facts"]
    assert facts["machine"]["threads of a run"].startswith("3 ")
    assert facts["machine"]["cores"] == str(os.cpu_count())
    assert facts["versions"]["torch"] == metadata.version("torch")
    assert facts["self test"] == {f"two steps on {defaults.best_device()}": "works"}


def test_data_sets_are_found(tmp_path):
    facts = doctor("--data-dir", tmp_path)["facts"]["data"]
    assert facts["digits"] == "there"
    assert f"deepbilevel data fetch cifar10 --dir {tmp_path}" in facts["cifar10"]
    assert facts["voc2007"] == facts["imagenet"] == facts["clothing1m"] == "not there"
    write_cifar(tmp_path, CIFAR10)
    for write in (write_voc, write_imagenet, write_clothing1m):
        write(tmp_path)
    facts = doctor("--data-dir", tmp_path)["facts"]["data"]
    there = {name for name, found in facts.items() if found == "there"}
    assert there == {"digits", "cifar10", "voc2007", "imagenet", "clothing1m"}


def test_a_data_folder_that_was_named_must_be_there(tmp_path):
    (problem,) = doctor("--data-dir", tmp_path / "missing")["problems"]
    assert "missing does not exist" in problem


def test_every_optional_package_is_looked_for():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    extra = re.search(r"^cli = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    wanted = set(re.findall(r'^ *"([\w-]+)', extra.group(1), re.MULTILINE))
    known = {*command.OPTIONAL_PACKAGES, "typer", "rich", "tomli"}  # without typer and rich there is no command
    assert wanted == known


def test_a_missing_package_is_told_with_its_install_line(monkeypatch):
    real = metadata.version

    def version(package):
        if package in {"filelock", "vl-convert-python"}:
            raise metadata.PackageNotFoundError(package)
        return real(package)

    monkeypatch.setattr(metadata, "version", version)
    content = doctor()
    assert "pip install 'deepbilevel[cli]'" in content["facts"]["versions"]["vl-convert-python"]
    (problem,) = content["problems"]
    assert problem.startswith("filelock is missing")
    assert "pip install 'deepbilevel[cli]'" in problem


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="an administrator may write everywhere")
def test_a_folder_that_cannot_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    problems = doctor()["problems"]
    tmp_path.chmod(0o700)
    assert any("cannot be written to" in problem for problem in problems)


def test_a_disk_that_refuses_and_is_full(monkeypatch):
    def refuse(path, *arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=2e8))
    content = doctor()
    assert content["facts"]["disk"] == {"free in this folder": "0.2 GB", "writing to it": "fails"}
    full, refused = content["problems"]
    assert "0.2 GB of free space" in full
    assert "cannot be written to" in refused


@pytest.mark.parametrize("rate", [0.0, float("nan")])
def test_training_that_does_not_train_is_found(monkeypatch, rate):
    real = torch.optim.SGD
    monkeypatch.setattr(torch.optim, "SGD", lambda parameters, lr: real(parameters, lr=torch.tensor(rate)))
    content = doctor()
    assert content["facts"]["self test"] == {f"two steps on {defaults.best_device()}": "fails"}
    (problem,) = content["problems"]
    assert ("nothing was learned" if rate == 0 else "not finite") in problem


def test_problems_are_listed_and_fail(monkeypatch):
    def fail(device):
        raise RuntimeError("illegal instruction")

    monkeypatch.setattr(command, "_train_two_steps", fail)
    result = run_in_process("doctor")
    assert result.exit_code == 1
    assert "all well" not in result.stdout
    assert "problem: training two steps" in result.stdout
    assert "RuntimeError: illegal instruction" in result.stdout
