"""Every example runs, and does what it says."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
# Guessing one of two classes gives 0.5, give or take 0.02, and one of four a loss of 1.4: no example that does not
# learn comes near these bounds. From three to ten seeds they ended with 0.87 to 1, and with a loss of 0.1.
EXPECTED = {
    "plain_loop": lambda accuracy: accuracy > 0.7,
    "mixed_precision": lambda loss: loss < 0.5,
    "resume": lambda same: same,
    # The largest class has 63 % of the rows, and a third of the paragraphs.
    "tabular": lambda accuracy: min(accuracy.values()) > 70,
    "text": lambda accuracy: max(accuracy.values()) > 50,
    "many_processes": lambda answer: answer[0] > 0.7,
    "photographs": lambda shape: shape == (2, 5),
    # Of four classes, and of two. Both ways of training learn; which is better depends on the seed.
    "lightning_module": lambda accuracies: min(accuracies.values()) > 0.4,
    "accelerate_loop": lambda accuracies: min(accuracies.values()) > 0.4,
    "huggingface": lambda accuracies: min(accuracies.values()) > 0.55,
    "scikit": lambda accuracies: min(accuracies.values()) > 0.55,
}
# Trainers of others: the extra that an example needs, and what they say of themselves and of the machine.
EXTRAS = {
    "lightning_module": "lightning",
    "accelerate_loop": "accelerate",
    "huggingface": "transformers",
    "scikit": "sklearn",
}


def test_every_example_is_checked():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*EXPECTED, "ray_train"}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.filterwarnings("ignore:.*(does not have many workers|LeafSpec|smaller than the logging interval)")
def test_the_example_does_what_it_says(name):
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name], reason=f"{EXTRAS[name]} is missing; run: pip install '.[{EXTRAS[name]}]'")
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) < 80
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert EXPECTED[name](module.main())


@pytest.mark.slow  # a cluster is started
def test_workers_of_ray_train_share_groups():
    pytest.importorskip("ray.train", reason="Ray Train is missing; run: pip install 'ray[train]'")
    path = EXAMPLES / "ray_train.py"
    assert len(path.read_text().splitlines()) < 80
    # Or it would train on a cluster that the user has named.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    # In a process of its own, with which the cluster ends, and in which Ray may warn of itself.
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=environment, timeout=600, check=False
    )
    found = re.search(r"([\d.]+)% of the right labels", done.stdout)
    assert found, done.stdout + done.stderr
    assert float(found[1]) > 40  # guessing gives 25
