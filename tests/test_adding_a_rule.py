"""The rule of docs/own-rules.md passes the contract battery, trains and is compared, with src untouched."""

import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from deepbilevel import GroupStep
from tests import test_loop_contract

PAGE = Path(__file__).parents[1] / "docs" / "own-rules.md"


def battery():
    """Return every test of the contract that is run for all rules, with the arguments it takes besides the rule."""
    for name, test in inspect.getmembers(test_loop_contract, inspect.isfunction):
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        over_steps = [mark for mark in marks if mark.args[0] == "make" and len(mark.args[1]) > 10]
        if name.startswith("test_") and over_steps and len(marks) == 1:
            yield pytest.param(test, id=name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Save the page's rule as a module of its own."""
    (code,) = re.findall(r"```python\n(.*?class UnitMean.*?)```", PAGE.read_text(), flags=re.DOTALL)
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_rules.py").write_text(code)
    return folder


@pytest.fixture
def rule(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    return importlib.import_module("my_rules").UnitMean()


@pytest.mark.parametrize("test", list(battery()))
def test_the_rule_of_the_page_passes_the_battery(test, rule, monkeypatch):
    fixtures = {"monkeypatch": monkeypatch} if "monkeypatch" in inspect.signature(test).parameters else {}
    test(partial(GroupStep, rule=rule), **fixtures)


def test_the_battery_is_not_empty():
    assert len(list(battery())) > 10


def run_from_page(name, folder, out, *options):
    """Run the page's command of that name as it stands there, only smaller."""
    page = PAGE.read_text().replace("\\\n", "")  # a line that goes on is one
    (line,) = re.findall(rf"^deepbilevel ({name} .*)$", page, flags=re.MULTILINE)
    smaller = ["--epochs", "2", "--limit", "200", "--set", "group.batch_size=8", "--out", str(out), "--quiet"]
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "deepbilevel", *shlex.split(line), *smaller, *options],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_it_trains_by_its_import_path_and_is_named_in_the_record(folder, tmp_path):
    run_from_page("train", folder, tmp_path)
    (record,) = tmp_path.glob("*/record.json")
    content = json.loads(record.read_text())
    assert content["spec"]["method"] == {"kind": "my_rules:UnitMean"}
    assert content["status"] == "done"


@pytest.mark.slow  # three runs; the test above trains with the rule
def test_it_is_compared_with_others(folder, tmp_path):
    run_from_page("compare", folder, tmp_path, "--seeds", "0")
    (record,) = tmp_path.glob("sweep-compare-*.json")
    runs = {cell["row"]: [each["status"] for each in cell["runs"]] for cell in json.loads(record.read_text())["cells"]}
    assert runs == {key: ["done"] for key in ("sgd", "uniform", "sgd[method.kind=my_rules:UnitMean]")}
