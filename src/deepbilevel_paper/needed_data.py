"""Which data an experiment needs, what of it is not there, and how to get it.

Files are looked for and not opened: a damaged one is found when it is loaded.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_paper.experiment import Experiment
from deepbilevel_paper.large_data import PRETRAINED

_WEIGHTS_FILE = PRETRAINED.removeprefix("data:")


@dataclass(frozen=True)
class Missing:
    """What is not there, and what to do about it."""

    name: str
    remedy: str


def specs_of(experiment: Experiment) -> list[RunSpec]:
    """Return the runs of an experiment as in the paper, those that others need included."""
    return [spec for cell in experiment.cells() for spec in (*cell.before, cell.spec)]


def missing_data(specs: Iterable[RunSpec], data_dir: Path) -> list[Missing]:
    """Return what runs at the scales ``paper`` and ``compact`` need and a folder lacks, with the remedy."""
    missing: dict[str, Missing] = {}
    for spec in specs:
        name, entry = spec.data.name, spec.data.entry
        if not entry.is_in(data_dir):
            missing[name] = Missing(name, entry.remedy.format(dir=data_dir))
        if spec.network.weights == PRETRAINED and not (data_dir / _WEIGHTS_FILE).exists():
            remedy = f"fetch https://download.pytorch.org/models/{_WEIGHTS_FILE} into {data_dir}"
            missing[PRETRAINED] = Missing("ResNet-50 trained on ImageNet", remedy)
    return list(missing.values())
