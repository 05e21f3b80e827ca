"""Run a command that makes a sweep, and keep its record among the committed ones, finished or not."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deepbilevel_lab.records import SweepRecord, read_file
from deepbilevel_lab.replacement import write_text

INTERRUPTED = 130


def run_and_keep(words: Sequence[str], made: Path, kept: Path) -> int:
    """Run the command, copy the record it makes to ``kept`` unless that one has more finished runs, return its code."""
    code = subprocess.run(words, check=False).returncode
    if made.is_file():
        if kept.is_file() and _num_done(made) < _num_done(kept):
            print(f"{kept} stays: it has more finished runs than {made}", file=sys.stderr)
        else:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, made.read_text())
    return code


def _num_done(path: Path) -> int:
    return sum(run.status == "done" for cell in read_file(SweepRecord, path).cells for run in cell.runs)
