"""Freed memory stays with the process: counted in page faults, not in seconds."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from deepbilevel_lab.training.memory import keep_freed_memory

if sys.argv[1] == "keep":
    print(keep_freed_memory())
for _ in range(3):
    blocks = [torch.ones(1_000_000) for _ in range(20)]
    del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    blocks = [torch.ones(1_000_000) for _ in range(20)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's allocator that gives memory back")
def test_a_step_that_allocates_what_the_last_one_freed_faults_no_page():
    # Left alone, the allocator learns from what a program frees; told its thresholds, it gives everything back.
    eager = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}

    def faults(mode):
        command = [sys.executable, "-c", PROGRAM, mode]
        return subprocess.run(command, env=eager, capture_output=True, text=True, check=True).stdout.split()

    [could, kept] = faults("keep")
    [returned] = faults("return")
    if could == "False":
        pytest.skip("the allocator is not glibc's")
    assert int(kept) < int(returned) / 10
