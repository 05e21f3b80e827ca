"""The ranked table of an audit: named columns, rows, a DataFrame, a CSV file that no spreadsheet executes."""

import csv
import importlib
import io
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepbilevel.audit.mixture import Floats, Ints, NoiseRate

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True)
class Issue:
    """One row: a label, and what training says about it.

    >>> Issue(index=7, given_label=2, predicted_label=5, label_score=-3.1, is_label_issue=True, p_wrong=0.99).p_wrong
    0.99
    """

    index: int
    given_label: int
    predicted_label: int
    label_score: float
    is_label_issue: bool
    p_wrong: float
    class_index: int | None = None


@dataclass(frozen=True, eq=False)
class Issues:
    """All labels, the most suspicious first; columns are arrays of the same length.

    >>> import torch
    >>> from deepbilevel.audit import LabelAudit
    >>> labels = torch.tensor([0, 1] * 20)
    >>> audit = LabelAudit(labels, num_classes=2)
    >>> logits = torch.nn.functional.one_hot(labels).float() * 6
    >>> logits[3] = torch.tensor([6.0, 0.0])  # the network disagrees with the label 1
    >>> audit.observe(range(40), logits)
    >>> first = next(iter(audit.issues()))
    >>> first.index, first.given_label, first.predicted_label
    (3, 1, 0)

    Attributes:
        index: which sample.
        given_label: its label; for several labels per sample 1 or 0, whether it has the class.
        predicted_label: the class with the highest mean probability, where the label is an issue the highest other one:
            the suggestion. For several labels per sample 1 or 0. -1 where the sample was never visited.
        label_score: the score that was asked for; low ones are suspicious. NaN without a visit.
        is_label_issue: whether the label is more probably wrong than right.
        p_wrong: the probability that the label is wrong. NaN without a visit, and where right and wrong labels cannot
            be told apart.
        class_index: which class, for several labels per sample; otherwise ``None``.
        noise_rate: the share of wrong labels; for several labels per sample, of those that are given.
        missing_rate: the share of labels that are missing, for several labels per sample; otherwise ``None``.
        num_unvisited: how many samples were never visited: nothing is known of them.
        num_left_out: how many visits were left out, because a logit was NaN or infinite.
    """

    index: Ints
    given_label: Ints
    predicted_label: Ints
    label_score: Floats
    is_label_issue: npt.NDArray[np.bool_]
    p_wrong: Floats
    class_index: Ints | None
    noise_rate: NoiseRate
    missing_rate: NoiseRate | None
    num_unvisited: int
    num_left_out: int

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Issue]:
        return (Issue(*row) for row in zip(*(column.tolist() for column in self.columns.values()), strict=True))

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The columns by name, in the order of the table."""
        named = {field.name: getattr(self, field.name) for field in fields(Issue)}
        return {name: column for name, column in named.items() if column is not None}

    def to_pandas(self) -> Any:
        """Return the table as a ``pandas.DataFrame``."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("a DataFrame needs pandas; run: pip install pandas") from error
        return pandas.DataFrame(self.columns)

    def write_csv(
        self,
        path: str | os.PathLike[str],
        *,
        class_names: Sequence[str] | None = None,
        paths: Sequence[str] | None = None,
    ) -> None:
        """Write the table; if that fails, an existing file stays as it was.

        Text that a spreadsheet would take for a formula is written behind a ``'``, and such a path behind ``./``.

        Args:
            path: the file, which is replaced if it exists.
            class_names: written instead of numbers.
            paths: the file of each sample, by index: one more column.
        """
        names = None if class_names is None else [_as_text(name, "'") for name in class_names]
        columns: dict[str, list[Any]] = {name: column.tolist() for name, column in self.columns.items()}
        if names is not None:
            named = ["given_label", "predicted_label"] if self.class_index is None else ["class_index"]
            largest = max(max(columns[name], default=-1) for name in named)
            if largest >= len(names):
                raise ValueError(
                    f"class_names has {len(names)} names, but there is a class {largest}; name all classes"
                )
            for name in named:
                columns[name] = [names[label] if label >= 0 else "" for label in columns[name]]
        if paths is not None:
            if len(self) and len(paths) <= (largest := int(self.index.max())):
                raise ValueError(
                    f"paths has {len(paths)} entries, but there is a sample {largest}; give one per sample"
                )
            files = [_as_text(str(paths[index]), "./") for index in columns["index"]]
            columns = {"index": columns.pop("index"), "path": files, **columns}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        _replace(Path(path), text.getvalue().encode(errors="backslashreplace"))


def _as_text(value: str, prefix: str) -> str:
    return prefix + value if value.startswith(_FORMULA_STARTS) else value


def _replace(path: Path, content: bytes) -> None:
    # The laboratory does the same for its files; the library may not import it.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
