"""Runs that need other runs: which they are, and what they take from them.

A spec names another run by its id (``network.weights = "run:<id>"``, ``data.labels = "run:<id>"``); that run is looked
for in the folder of runs, and has to be finished. Labels that its network predicts are computed once and then lie in
its folder, as a file that says where they come from.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepbilevel_lab.data import LabelledSet
from deepbilevel_lab.data.table import Table
from deepbilevel_lab.noise import NoisyLabels, Provenance, flip_by_model, load_noisy_labels, save_noisy_labels
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.training.build import make_feed
from deepbilevel_lab.training.devices import find_device
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.model_file import load_model
from deepbilevel_lab.training.sets import find_tokenizer, load_sets
from deepbilevel_lab.training.spec import RunSpec

_BATCH_SIZE = 250  # of predictions; another would draw other dropout masks


def needs(spec: RunSpec) -> list[str]:
    """Return the ids of the runs that must be finished before this one can begin."""
    references = (spec.network.weights, spec.data.labels)
    return list(dict.fromkeys(run_id for each in references if (run_id := referred_run(each)) is not None))


def in_order(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return every run once, and none before the runs it needs; otherwise in the order given."""
    waiting = {spec.id: spec for spec in specs}
    ordered: dict[str, RunSpec] = {}

    def add(spec: RunSpec) -> None:
        # An id is a hash of a text that holds the ids it needs: there are no circles.
        for needed in needs(spec):
            if needed in waiting:
                add(waiting[needed])
        ordered.setdefault(spec.id, spec)

    for spec in waiting.values():
        add(spec)
    return list(ordered.values())


@dataclass(frozen=True)
class RunsBeside:
    """The runs in a folder, for one that needs them; labels are predicted for the images under ``data_dir``."""

    out: Path
    data_dir: Path

    def weights(self, run_id: str) -> str:
        """Return the file with the network of a finished run."""
        return str(self._finished(run_id).model_file)

    def labels(self, run_id: str, data: LabelledSet) -> NoisyLabels:
        """Return what the network of a finished run predicts for the images it was trained on, dropout left on."""
        folder = self._finished(run_id)
        if not folder.labels_file.is_file():
            self._predict(folder)
        noisy, provenance = load_noisy_labels(folder.labels_file)
        truth = data.labels if data.clean_labels is None else data.clean_labels
        if not np.array_equal(noisy.clean_labels, truth.numpy()):
            raise ValueError(
                f"{folder.labels_file} is for other images ({provenance.dataset}): a run that takes its labels from "
                f"run {run_id} must have the data.name, data.split and data.limit of that run"
            )
        return noisy

    def _finished(self, run_id: str) -> RunFolder:
        found = [RunFolder(path) for path in sorted(self.out.glob(f"*-{run_id}"))]
        if not found:
            raise FileNotFoundError(f"run {run_id} is needed, but not in {self.out}; train it first, with that --out")
        folder = found[0]
        if not folder.finished():
            raise FileNotFoundError(
                f"run {run_id} is needed, and is not finished; train it to the end: "
                f"deepbilevel train --spec {folder.spec_file} --out {self.out}"
            )
        return folder

    def _predict(self, folder: RunFolder) -> None:
        from filelock import FileLock

        # Runs that start side by side need the same labels: one predicts, the others wait.
        with FileLock(folder.path / ".labels.lock"):
            if folder.labels_file.is_file():
                return
            trained = load_model(folder.model_file)
            spec = trained.spec
            train = load_sets(spec.data, self.data_dir, noise=spec.noise, seed=spec.seed, runs=self).train
            truth = train.labels if train.clean_labels is None else train.clean_labels
            device = find_device(spec.device)
            if trained.encoding is not None and isinstance(train, Table):
                train = trained.encoding.encode(train, find_tokenizer(spec.network, spec.data.columns))
            feed = make_feed(spec, train, device, split="train")
            noisy = flip_by_model(
                truth.numpy(),
                model=trained.network.to(device),
                images=(batch.images for batch in feed.batches(_BATCH_SIZE)),
                num_classes=train.num_classes,
                seed=spec.seed,
            )
            part = "" if spec.data.limit is None else f", {len(train)} images in proportion to the classes"
            provenance = Provenance(
                kind="model",
                dataset=f"{spec.data.name} {spec.data.train_split}{part}",
                seed=spec.seed,
                note=f"predictions of run {spec.id}, {spec.name}, with dropout left on; {noisy.describe()}",
            )
            save_noisy_labels(folder.labels_file, noisy, provenance)
