"""Small runs and picture files for the tests of commands that use them."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from deepbilevel_lab.cli.app import app
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.run import train

COLOURS = {"blue": (30, 40, 220), "red": (220, 40, 30)}
SMALL_GROUPS = {"method": "sgd", "group.num_batches": 2, "group.batch_size": 8, "group.on_rare": "repeat"}


def make_spec(data="digits", network=None, *, path=None, **settings):
    settings = {"epochs": 1, "data.limit": 256, "data.test_limit": 60, "threads": 1, "device": "cpu", **settings}
    spec = default_spec(data, network, path=path)
    for key, value in settings.items():
        spec = with_value(spec, key, value)
    return spec


def train_run(out, spec, data_dir=Path("nowhere")):
    """Train, and return the folder of the run."""
    train(spec, out=Path(out), data_dir=data_dir)
    return RunFolder.of(spec, Path(out)).path


def run_in_process(*arguments, **environment):
    # Wide enough that no cell of a table is broken.
    runner = CliRunner(env={"COLUMNS": "250", "DEEPBILEVEL_DATA": None, **environment})
    return runner.invoke(app, list(map(str, arguments)))


def run(*arguments):
    """Run a command that must succeed."""
    result = run_in_process(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refusal(*arguments):
    """Run a command that must be refused without a traceback, and return what it says."""
    result = run_in_process(*arguments)
    assert result.exit_code != 0
    assert isinstance(result.exception, SystemExit), result.exception
    return result.stderr


def run_command(*arguments, cwd=None):
    command = [sys.executable, "-m", "deepbilevel", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "250"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, check=False)


def write_picture(path, colour, size=(60, 40), seed=0):
    """Write a noisy picture of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.RandomState(seed).randint(-25, 26, (size[1], size[0], 3))
    Image.fromarray((np.array(COLOURS[colour]) + noise).astype(np.uint8)).save(path)
    return path


def write_colours(root, per_class=24):
    for colour in COLOURS:
        for number in range(per_class):
            write_picture(root / colour / f"{number}.jpg", colour, seed=number)
    return root


def train_on_colours(tmp_path):
    """Return a run that tells blue pictures from red ones."""
    pictures = write_colours(tmp_path / "pictures")
    settings = {"data.limit": None, "data.test_limit": None, "epochs": 4, **SMALL_GROUPS}
    return train_run(tmp_path / "runs", make_spec("folder", path=str(pictures), **settings))
