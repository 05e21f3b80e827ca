"""The example under torchrun ends where it ends in one process."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "many_processes.py"
# A process that ends while threads of its group are alive aborts now and then.
THREADS_AFTER_IT = f"""
import runpy
from pathlib import Path
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
print("alive:", *(each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")))
"""


@pytest.mark.slow
def test_the_example_ends_alike_under_torchrun(tmp_path):
    spec = importlib.util.spec_from_file_location("many_processes", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    alone, _ = module.main()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    script = tmp_path / "script.py"
    script.write_text(THREADS_AFTER_IT)
    result = subprocess.run(
        [sys.executable, *launcher, str(script)], capture_output=True, text=True, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    (together,) = re.findall(r"test accuracy (\S+)%", result.stdout)
    assert abs(100 * alone - float(together)) < 1.0  # float32: other sums in another order
    assert result.stdout.count("alive:") == 2
    assert "gloo" not in result.stdout
