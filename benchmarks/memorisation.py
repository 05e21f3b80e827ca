"""Does the paper's gain on Inception appear once SGD memorises the wrong labels?

    python -m benchmarks.memorisation      # two hours of a core; the same command goes on

A quarter of the channels, 5,000 images without augmentation, half of the labels wrong; BatchNorm, dropout, weight decay
and schedule as in the paper. With augmentation, SGD memorises too little at this size to be hurt by it. The records are
copied to ``results/memorisation``. CIFAR-10 is looked for in ``DEEPBILEVEL_DATA``.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.record_tables import RESULTS, markdown_table, triple
from deepbilevel_lab.records import SweepRecord, read_file
from deepbilevel_lab.training.export import export_records

METHODS: Mapping[str, str] = {
    "sgd": "SGD",
    "uniform[shared_dropout=true]": "equal weights (control)",
    "bilevel[shared_dropout=true]": "bilevel, the paper's baseline",
    "cross-validated": "cross-validated",
    "bilevel": "bilevel, d) independent dropout",
}
SHORT: Mapping[str, str] = {
    "uniform[shared_dropout=true]": "uniform",
    "bilevel[shared_dropout=true]": "bilevel",
    "bilevel": "bilevel, d)",
}
"""Names as other tables have them; equal masks for all mini-batches are the paper's baseline."""
_ROOT = Path(__file__).parents[1]
_RECORDS = RESULTS / "memorisation"
_NAME = "inception-memorising"


def command(out: Path, seeds: str) -> list[str]:
    """Return the command that makes the runs, or goes on with them."""
    words = ["--data=cifar10", "--limit=5000", "--network=benchmarks/inception_quarter.py:make", "--noise=uniform:0.5"]
    settings = {
        "data.test_limit": "5000",
        "data.recipe": "cifarnet",  # the centre, standardised: no augmentation
        "evaluate_every": "5",
        "optimizer.lr": "0.1",
        "optimizer.arguments.weight_decay": "5e-4",
        "optimizer.decay": "weights",
        "schedule": "exponential",
        "weight_averaging": "null",
    }
    words += ["--epochs=60", *(f"--set={name}={value}" for name, value in settings.items())]
    words += [f"--methods={','.join(METHODS)}", f"--seeds={seeds}", "--threads=1", f"--name={_NAME}", f"--out={out}"]
    return [sys.executable, "-m", "deepbilevel", "compare", *words]


def committed() -> SweepRecord | None:
    """Return the committed record, or None if there is none."""
    path = _RECORDS / f"sweep-{_NAME}.json"
    return read_file(SweepRecord, path) if path.is_file() else None


def table() -> str:
    """Return test accuracy of the last epoch and of the best one, and accuracy on the labels as given."""
    record = committed()
    rows = [[METHODS[cell.row], triple(cell)] for cell in record.cells] if record is not None else []
    return markdown_table(["", "test, last / best / train"], rows)


def main() -> None:
    """Make the runs and keep their records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/memorisation"), help="the folder of the runs")
    parser.add_argument("--seeds", default="0-1", help="seeds, as in 0-1")
    given = parser.parse_args()
    out = given.out.resolve()
    code = subprocess.run(command(out, given.seeds), check=False, cwd=_ROOT).returncode
    export_records(out, _RECORDS)
    sys.exit(code)


if __name__ == "__main__":
    main()
