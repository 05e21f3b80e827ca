"""Marks in the folder of runs: they stand while their process lives, and those of killed ones are cleared away."""

import subprocess
import sys

from deepbilevel_lab.sweeps.marks import standing_mark

PROGRAM = """
import sys
from pathlib import Path
from deepbilevel_lab.sweeps.marks import standing_mark
with standing_mark(Path(sys.argv[1])) as mark:
    print(mark, flush=True)
    sys.stdin.read()
"""


def start(folder):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def test_marks_of_the_living_stay_and_those_of_the_killed_go(tmp_path):
    (killed, left), (living, standing) = start(tmp_path), start(tmp_path)
    killed.kill()
    killed.communicate()
    assert sorted(map(str, tmp_path.iterdir())) == sorted([left, standing])
    with standing_mark(tmp_path) as mark:
        assert sorted(map(str, tmp_path.iterdir())) == sorted([standing, str(mark)])
    living.communicate()
    assert list(tmp_path.iterdir()) == []
