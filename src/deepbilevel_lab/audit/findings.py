"""From the folder of a finished run to a ranked table of its labels, beside the images they belong to."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from deepbilevel.audit import Issues
from deepbilevel_lab.data import LabelledSet
from deepbilevel_lab.data.catalog import load_samples
from deepbilevel_lab.data.decisions import names_in
from deepbilevel_lab.training.auditing import KeptAudit, load_audit
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.spec import RunSpec


@dataclass(frozen=True, eq=False)
class Findings:
    """What is known of the labels of a data set.

    Attributes:
        issues: the most suspicious first; images are counted as in the data set.
        probabilities: the mean predicted ones of the images that were observed, in the order of the data set.
        curves: how probabilities moved in training, of the same images; see :meth:`LabelAudit.curves`.
        data: the whole data set.
        files: of its images, as seen from its folder or table; empty where they have none.
        class_names: as numbered in ``issues``.
        spec: the run that was watched.
    """

    issues: Issues
    probabilities: npt.NDArray[np.float32]
    curves: npt.NDArray[np.float32]
    data: LabelledSet
    files: list[str]
    class_names: tuple[str, ...]
    spec: RunSpec

    @property
    def title(self) -> str:
        """What the data set is called."""
        path = self.spec.data.path
        name = self.spec.data.name if path is None else Path(path).resolve().name
        return os.fsencode(name).decode(errors="replace")


def find_issues(folder: RunFolder, data_dir: Path) -> Findings:
    """Judge the labels of a finished run that kept its observations.

    Args:
        folder: of the run.
        data_dir: where published data sets lie.
    """
    if not folder.finished():
        raise ValueError(
            f"{folder.path} is not a finished run; train it to the end: deepbilevel train --spec {folder.spec_file} "
            f"--out {folder.path.parent}"
        )
    if not folder.audit_file.is_file():
        raise ValueError(
            f"{folder.path} kept no observations of its labels; train it with --set audit=true, or audit its data"
        )
    kept = load_audit(folder.audit_file)
    spec = kept.spec.data
    directory = data_dir if spec.path is None else Path(spec.path)
    whole = load_samples(spec.name, directory, spec.train_split, columns=spec.columns)
    _check_unchanged(kept, whole, directory)
    found = kept.audit.issues()
    return Findings(
        issues=replace(found, index=kept.numbers.numpy()[found.index]),
        probabilities=kept.audit.pred_probs(),
        curves=kept.audit.curves(),
        data=whole,
        files=names_in(whole, directory),
        class_names=kept.class_names,
        spec=kept.spec,
    )


def _check_unchanged(kept: KeptAudit, whole: LabelledSet, directory: Path) -> None:
    """Refuse images that are not those of the run: each label would stand below the picture of another."""
    spec = kept.spec
    is_same = kept.class_names == whole.class_names and int(kept.numbers.max()) < len(whole)
    if is_same and spec.noise is None and spec.data.labels is None:
        is_same = torch.equal(torch.from_numpy(kept.audit.labels), whole.labels[kept.numbers].long())
    is_same = is_same and spec.data.content in (None, spec.data.take_content())
    if not is_same:
        raise ValueError(
            f"the {whole.noun}s or labels in {directory} are not those that run {spec.id} was trained on; audit them "
            "anew, into another folder"
        )
