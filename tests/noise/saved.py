"""A file of noisy labels, for the tests that read it and those that damage it."""

from pathlib import Path

import numpy as np

from deepbilevel_lab.noise import Provenance, flip_uniformly, save_noisy_labels
from tests.contracts.noise import clean_labels_of

NOISY = flip_uniformly(clean_labels_of([20, 30, 40]), 0.4, num_classes=4, seed=5)
PROVENANCE = Provenance(kind="uniform", dataset="“digits”, train", rate=0.4, seed=5, note="a\nnote")


def save_in(folder: Path) -> Path:
    """Write the file and return its path."""
    path = folder / "labels.npz"
    save_noisy_labels(path, NOISY, PROVENANCE)
    return path


def entries_of(path: Path) -> dict[str, np.ndarray]:
    """Return what the file holds, read without this package."""
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}
