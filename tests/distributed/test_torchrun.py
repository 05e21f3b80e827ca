"""The example under torchrun ends where it ends in one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "many_processes.py"
# In float64 the two ways differ by rounding alone; in float32 other sums in another order add up to other accuracies.
SCRIPT = f"""
import os, runpy, sys, torch
torch.set_default_dtype(torch.float64)
accuracy, weights = runpy.run_path({str(EXAMPLE)!r})["main"]()
torch.save((accuracy, weights), sys.argv[1] + os.environ.get("RANK", ""))
"""


@pytest.mark.slow
def test_the_example_ends_alike_under_torchrun(tmp_path):
    script = tmp_path / "in_float64.py"
    script.write_text(SCRIPT)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for options, name in (([], "alone"), (launcher, "rank")):
        result = subprocess.run(
            [sys.executable, *options, script, tmp_path / name],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("test accuracy") == 1
    accuracy, weights = torch.load(tmp_path / "alone", weights_only=True)
    for rank in (0, 1):
        its_accuracy, its_weights = torch.load(tmp_path / f"rank{rank}", weights_only=True)
        assert its_accuracy == pytest.approx(accuracy, abs=0.005)  # two of 512 points
        # Another share of a group, or weights by half of it, would part the two at the first step.
        assert torch.dist(its_weights, weights) <= 1e-6 * weights.norm()
