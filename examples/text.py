"""Text with wrong labels: which library does a paragraph of documentation come from?

The paragraphs are docstrings of torch, numpy and scikit-learn, as installed; those that name a library are left out.
30 % of the labels are wrong. The run is short, and stops before SGD memorises.
"""

import csv
import inspect
import random
import re
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from deepbilevel.rules.average import Sgd
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel_lab.data.table import ColumnsSpec
from deepbilevel_lab.losses import Mixup
from deepbilevel_lab.noise import parse_noise
from deepbilevel_lab.training import default_spec, train

MODULES = {
    "torch": ("torch", "torch.nn", "torch.optim", "torch.linalg"),
    "numpy": ("numpy", "numpy.linalg", "numpy.random", "numpy.fft"),
    "sklearn": ("sklearn.linear_model", "sklearn.ensemble", "sklearn.cluster", "sklearn.metrics"),
}
METHODS = {"sgd": (Sgd(), None), "mixup": (Sgd(), Mixup()), "bilevel": (BilevelRule(), None)}


def main(epochs: int = 6, num_rows: int = 1500) -> dict[str, float]:
    """Train with each method on 30 % wrong labels; print and return the test accuracies in percent."""
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(Path(folder) / "paragraphs.csv", num_rows)
        spec = default_spec("table", path=str(table), columns=ColumnsSpec("library", text="paragraph"))
        spec = replace(spec, epochs=epochs, evaluate_every=epochs, noise=parse_noise("uniform:0.3"))
        spec = replace(spec, optimizer=replace(spec.optimizer, lr=0.05))  # there is time for few steps only
        accuracy: dict[str, float] = {}
        for name, (method, mixing) in METHODS.items():
            run = replace(spec, method=method, mixing=mixing)
            record = train(run, out=Path(folder) / "runs", data_dir=Path(folder))
            accuracy[name] = record.figures["test"] or 0.0
            print(f"{name:16} {accuracy[name]:.1f} % of the test labels, which are clean")
    return accuracy


def write_table(path: Path, num_rows: int) -> Path:
    """Write paragraphs with the library they come from, in random order."""
    rows = sorted({(text, library) for library, names in MODULES.items() for text in paragraphs(names)})
    random.Random(0).shuffle(rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["paragraph", "library"])
        writer.writerows(rows[:num_rows])
    return path


def paragraphs(modules: tuple[str, ...]) -> set[str]:
    """Return the paragraphs of what these modules hold, without code and without names of libraries."""
    found: set[str] = set()
    for module in map(import_module, modules):
        for name in dir(module):
            thing = getattr(module, name)
            documentation = inspect.getdoc(thing) or "" if callable(thing) else ""
            for part in documentation.split("\n\n"):
                text = " ".join(part.split())
                if len(text) > 60 and ">>>" not in text and not re.search("numpy|torch|sklearn|scikit", text, re.I):
                    found.add(text)
    return found


if __name__ == "__main__":
    main()
