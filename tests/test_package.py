"""What users import and install."""

import re
import runpy
import subprocess
import sys
from importlib.metadata import requires, version
from pathlib import Path

import pytest

import deepbilevel
import deepbilevel_lab


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_public_names_are_all_there():
    steps, samplers = ["Bilevel", "CrossValidated", "GroupStep"], ["MatchedGroups"]
    assert sorted([*steps, *samplers, "BilevelReport", "bilevel_weights"]) == deepbilevel.__all__
    for name in deepbilevel.__all__:
        assert getattr(deepbilevel, name).__doc__
        assert name in dir(deepbilevel)
    with pytest.raises(AttributeError, match="no attribute 'Trilevel'"):
        _ = deepbilevel.Trilevel


def test_the_version_is_stated_once():
    assert version("deepbilevel") == deepbilevel.__version__


def test_the_library_needs_torch_and_numpy_only():
    base = [line for line in requires("deepbilevel") if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in base) == ["numpy", "torch"]


def test_the_lowest_versions_tested_are_those_admitted():
    root = Path(__file__).parents[1]
    needed = (root / "pyproject.toml").read_text().partition("\ntimm = [")[0]
    bounds = re.findall(r'^    "([\w-]+)>=([\d.]+)"', needed, re.MULTILINE)
    tested = re.findall(r"^([\w-]+)==([\d.]+)$", (root / "constraints-lowest.txt").read_text(), re.MULTILINE)
    assert tested == bounds
    assert len(tested) > 10


def test_every_extra_is_tried_alone():
    root = Path(__file__).parents[1]
    extras = {line.split("extra == ")[1].strip("'\"") for line in requires("deepbilevel") if "extra == " in line}
    tried = re.search(r"^ALONE := (.*)$", (root / "Makefile").read_text(), re.MULTILINE)
    assert {*tried[1].split(), "timm", "bench", "dev"} == extras
    smoke = runpy.run_path(str(root / "tests" / "smoke.py"))
    assert sorted(tried[1].split()) == sorted([*smoke["TRAINERS"], *smoke["COMMANDS"]])


def test_help_does_not_load_torch():
    code = """
import sys
sys.argv = ["deepbilevel", "demo", "--help"]
try:
    from deepbilevel_lab.cli import main
    main()
except SystemExit as end:
    assert not end.code
assert "torch" not in sys.modules
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert "--seeds" in result.stdout


def test_the_laboratory_tells_its_version_without_torch():
    code = "import sys, deepbilevel_lab; print(deepbilevel_lab.__version__); assert 'torch' not in sys.modules"
    assert run(code).stdout.strip() == version("deepbilevel")
    with pytest.raises(AttributeError, match="no attribute '__verison__'"):
        _ = deepbilevel_lab.__verison__


@pytest.mark.parametrize("package", ["deepbilevel", "deepbilevel_lab"])
def test_both_packages_can_be_run_as_the_command(package):
    done = subprocess.run([sys.executable, "-m", package, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, f"deepbilevel {version('deepbilevel')}", "")


def test_the_library_works_where_the_laboratory_is_not_installed():
    code = """
import sys
sys.modules["deepbilevel_lab"] = sys.modules["deepbilevel_paper"] = None
import pkgutil, importlib, deepbilevel
for module in pkgutil.walk_packages(deepbilevel.__path__, "deepbilevel."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:  # trainers of others, each with an extra of its own
            name = module.name.removeprefix("deepbilevel.integrations.").removesuffix("_files")
            assert f"pip install 'deepbilevel[{name}]'" in str(error)
"""
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_a_step_loads_little_beside_torch_and_numpy():
    code = """
import sys, torch
import numpy.random
before = set(sys.modules)
from deepbilevel import Bilevel
Bilevel(torch.nn.Linear(2, 2), num_batches=2)
print(*(name for name in set(sys.modules) - before))
"""
    loaded = run(code).stdout.split()
    assert "deepbilevel.step" in loaded
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names == {"deepbilevel"}
    assert not [name for name in loaded if name.startswith(("deepbilevel.distributed", "deepbilevel.one_pass"))]


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_says_what_to_install_when_its_extra_is_missing(missing):
    result = run(f"import sys; sys.modules[{missing!r}] = None; from deepbilevel_lab.cli import main; main()")
    assert result.returncode == 1
    assert "pip install 'deepbilevel[cli]'" in result.stderr


def test_the_papers_rule_is_about_ten_modules():
    code = (
        "import sys; from deepbilevel import Bilevel; print(sum(n.split('.')[0] == 'deepbilevel' for n in sys.modules))"
    )
    assert int(run(code).stdout) <= 12


def test_what_is_loaded_on_demand_is_there_like_everything_else():
    code = """
import deepbilevel
from deepbilevel import *
assert MatchedGroups is deepbilevel.MatchedGroups and CrossValidated is deepbilevel.CrossValidated
assert {"MatchedGroups", "CrossValidated", "Bilevel"} <= set(dir(deepbilevel))
try:
    deepbilevel.Bilvel
except AttributeError as error:
    print(error)
"""
    assert "no attribute 'Bilvel'; there are: Bilevel, " in run(code).stdout
