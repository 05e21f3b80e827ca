"""A first minute with what is installed, be it the library alone or with one of its extras. Run by `make package`.

``python -I tests/smoke.py`` needs torch, numpy and the library, and nothing of this clone. With ``cli`` behind it, it
runs the command; with the extra of a trainer, the example that users run as well.
"""

import runpy
import subprocess
import sys
import tempfile
from importlib.metadata import requires, version
from pathlib import Path

import torch
from torch import nn

from deepbilevel import Bilevel, CrossValidated, MatchedGroups, __version__
from deepbilevel.audit import LabelAudit

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Where an extra is a trainer: its example, as short as it can be.
TRAINERS = {
    "sklearn": ("scikit", {"seeds": 1}),
    "accelerate": ("accelerate_loop", {"epochs": 1}),
    "lightning": ("lightning_module", {"epochs": 1}),
    "transformers": ("huggingface", {"epochs": 1}),
}
# Where it is of the command: what is typed, in an empty folder.
SHORT = "--epochs 1 --threads 1"
COMMANDS = {
    "cli": [
        "--help",
        f"compare --data digits --methods sgd,bilevel --seeds 0 {SHORT} --out runs",
        "report runs --out report",
        "predict {run} image.png",
    ],
    "tables": [
        f"train --data table.parquet --target kind {SHORT} --out runs",
        "predict {run} table.parquet --out labels.parquet",
        f"audit table.parquet --target kind {SHORT} --out audit",
    ],
    "ray": [f"compare --data digits --methods sgd,bilevel --seeds 0 {SHORT} --on ray --out runs"],
}


def main(extra: str = "") -> None:
    if extra in TRAINERS:
        example, shortly = TRAINERS[extra]
        runpy.run_path(str(EXAMPLES / f"{example}.py"))["main"](**shortly)
    elif extra:
        with tempfile.TemporaryDirectory() as folder:
            write_inputs(extra, Path(folder))
            for command in COMMANDS[extra]:
                run = next((str(each) for each in Path(folder, "runs").glob("*") if each.is_dir()), "")
                words = [word.format(run=run) for word in command.split()]
                subprocess.run([sys.executable, "-Im", "deepbilevel", *words], cwd=folder, check=True)
    else:
        library_alone()
    print(f"deepbilevel{extra and f'[{extra}]'} {__version__} with torch {torch.__version__} works")


def write_inputs(extra: str, folder: Path) -> None:
    """Write what the commands read, with nothing but what the extra brings."""
    if extra == "cli":
        from PIL import Image

        Image.new("L", (20, 20)).save(folder / "image.png")
    if extra == "tables":
        from pyarrow import parquet, table

        lengths = [n % 7 / 2 for n in range(200)]
        rows = {"length": lengths, "kind": ["long" if length > 1 else "short" for length in lengths]}
        parquet.write_table(table(rows), folder / "table.parquet")


def library_alone() -> None:
    assert __version__ == version("deepbilevel")
    always = [line for line in requires("deepbilevel") or [] if "extra ==" not in line]
    assert sorted(line.split(">")[0] for line in always) == ["numpy", "torch"], always
    torch.manual_seed(0)
    images, labels = torch.randn(256, 8), torch.arange(256) % 4
    for make in (Bilevel, CrossValidated):
        model = nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step, audit = make(model, num_batches=4), LabelAudit(labels, num_classes=4)
        before = model.weight.detach().clone()
        for indices in MatchedGroups(labels, num_batches=4, batch_size=8, seed=0):
            logits = model(images[indices])
            audit.observe(indices, logits)
            step.backward(nn.functional.cross_entropy(logits, labels[indices]))
            if step.full:
                step.fill()
                optimizer.step()
        assert not torch.equal(model.weight, before)
        assert len(audit.issues()) == len(labels)
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"deepbilevel_lab", "typer", "rich", "sklearn"}, loaded


if __name__ == "__main__":
    main(*sys.argv[1:])
