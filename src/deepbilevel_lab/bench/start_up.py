"""How long it takes until something happens: a help page, and the import of the package, in processes of their own."""

import os
import subprocess
import sys
import time

from deepbilevel_lab.bench.timing import Budget, Spread, Update, take_turns

_PROGRAMS = {
    "import torch": "import torch",
    "import deepbilevel": "import deepbilevel",
    "from deepbilevel import Bilevel": "from deepbilevel import Bilevel",
    "deepbilevel --help": (
        "import sys; sys.argv = ['deepbilevel', '--help']; from deepbilevel_lab.cli import main; main()"
    ),
    "python": "pass",
}


def measure_start_up(num_rounds: int) -> dict[str, dict[str, Spread]]:
    """Return for each program its seconds, and how many times longer it takes than to import torch."""
    reference = "import torch"
    budget = Budget(seconds=float("inf"), rounds=num_rounds)
    updates: dict[str, Update] = {name: lambda code=code: _run(code) for name, code in _PROGRAMS.items()}
    # A person waits by the clock on the wall, and processor time is not that of another process.
    turns = take_turns(updates, budget, always=[reference], clock=time.perf_counter)
    if turns.failures:
        raise RuntimeError(f"start-up cannot be measured: {turns.failures}")
    return {
        name: {"seconds": Spread.of([*seconds.values()]), "ratio": Spread.of(turns.ratios(name, reference))}
        for name, seconds in turns.seconds.items()
    }


def _run(code: str) -> None:
    # Who has installed the package has its byte code; from a checkout the first start leaves it behind, if it may.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=True, env=environment)
