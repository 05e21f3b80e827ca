"""The example under torchrun ends where it ends in one process."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "many_processes.py"


@pytest.mark.slow
def test_the_example_ends_alike_under_torchrun():
    spec = importlib.util.spec_from_file_location("many_processes", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    alone, _ = module.main()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *launcher, str(EXAMPLE)], capture_output=True, text=True, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    (together,) = re.findall(r"test accuracy (\S+)%", result.stdout)
    assert abs(100 * alone - float(together)) < 1.0  # float32: other sums in another order
