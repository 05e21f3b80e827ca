"""Every example runs, and does what it says."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
EXPECTED = {
    "plain_loop": lambda accuracy: accuracy > 0.9,
    "mixed_precision": lambda loss: loss < 0.5,
    "resume": lambda same: same,
    "many_processes": lambda answer: answer[0] > 0.9,
}


def test_every_example_is_checked():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_example_does_what_it_says(name):
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) < 80
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert EXPECTED[name](module.main())
