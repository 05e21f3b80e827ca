"""On two processes every trainer ends where a loop of one's own ends; what is dealt out twice is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.integrations.tasks import plain_loop

SCRIPT = Path(__file__).parent / "in_two_processes.py"


def run(trainer, spread, folder):
    """Return what each process had: the trainer's parameters, or what it said, and those of a loop of one's own."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, str(SCRIPT), trainer, spread, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    return [torch.load(folder / f"rank{rank}", weights_only=True) for rank in (0, 1)]


TRAINERS = [
    ("lightning", "lightning", "batches"),
    pytest.param("lightning", "lightning", "groups", marks=pytest.mark.slow),
    ("transformers", "transformers", "groups"),
    ("accelerate", "accelerate", "batches"),
    pytest.param("accelerate", "accelerate", "groups", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("package", "trainer", "spread"), TRAINERS)
def test_a_trainer_ends_where_a_loop_of_ones_own_ends(tmp_path, package, trainer, spread):
    pytest.importorskip(package, reason=f"{package} is missing; run: pip install '.[{package}]'")
    for ours, by_hand in run(trainer, spread, tmp_path):
        torch.testing.assert_close(ours, by_hand, rtol=1e-9, atol=1e-12)
        if spread == "batches":  # one group for both: as in one process
            torch.testing.assert_close(ours, plain_loop(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("package", "trainer", "message"),
    [
        ("lightning", "lightning_dealt_twice", "set Trainer(use_distributed_sampler=False)"),
        ("accelerate", "accelerate_dealt_twice", "leave the loader out of prepare()"),
    ],
)
def test_groups_that_would_be_dealt_out_twice_are_refused(tmp_path, package, trainer, message):
    pytest.importorskip(package, reason=f"{package} is missing; run: pip install '.[{package}]'")
    for said, _ in run(trainer, "batches", tmp_path):
        assert message in said
