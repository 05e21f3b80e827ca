"""Processes that leave a process group leave nothing of it behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "many_processes.py"
OF_THE_EXAMPLE = f"""
import runpy
runpy.run_path({str(EXAMPLE)!r})["main"](epochs=1)
"""
OF_THE_COMMAND = """
import torch
from deepbilevel_lab.processes import Launch
with Launch.find().joined("cpu", timeout=60):
    torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=1.0)
"""
THREADS = """
from pathlib import Path
print("alive:", *(each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux")
@pytest.mark.parametrize("code", [OF_THE_EXAMPLE, OF_THE_COMMAND], ids=["example", "command"])
def test_no_thread_of_the_group_is_alive_after_it(code, tmp_path):
    """A process that ends beside such a thread aborts now and then."""
    script = tmp_path / "script.py"
    script.write_text(code + THREADS)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, *launcher, str(script)], capture_output=True, text=True, check=False, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("alive:") == 2
    assert "gloo" not in result.stdout
