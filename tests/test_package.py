"""What users import and install."""

import subprocess
import sys
from importlib.metadata import requires, version

import pytest

import deepbilevel


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_public_names_are_all_there():
    steps, samplers = ["Bilevel", "CrossValidated"], ["MatchedGroups"]
    assert sorted([*steps, *samplers, "CrossValidatedReport", "StepReport", "bilevel_weights"]) == deepbilevel.__all__
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


def test_help_does_not_load_torch():
    code = """
import sys
sys.argv = ["deepbilevel", "demo", "--help"]
try:
    from deepbilevel.cli import main
    main()
except SystemExit as end:
    assert not end.code
assert "torch" not in sys.modules
"""
    result = run(code)
    assert result.returncode == 0, result.stderr
    assert "--seeds" in result.stdout


def test_a_step_loads_little_beside_torch():
    code = """
import sys, torch
before = set(sys.modules)
from deepbilevel import Bilevel
Bilevel(torch.nn.Linear(2, 2), num_batches=2)
print(*(name for name in set(sys.modules) - before))
"""
    loaded = run(code).stdout.split()
    assert "deepbilevel.step" in loaded
    assert {name.split(".")[0] for name in loaded} - sys.stdlib_module_names == {"deepbilevel"}
    of_many = ("averaged_groups", "same_model", "running_statistics", "sharded_group", "spread_group")
    assert not {f"deepbilevel.sharing.{name}" for name in of_many} & set(loaded)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_command_says_what_to_install_when_its_extra_is_missing(missing):
    result = run(f"import sys; sys.modules[{missing!r}] = None; from deepbilevel.cli import main; main()")
    assert result.returncode == 1
    assert "pip install 'deepbilevel[cli]'" in result.stderr
