"""What every step of a run did, as small arrays: weights, agreement, lengths and losses. One file per epoch.

``read_steps`` puts them together: ``weights`` has the shape ``[steps, training mini-batches]``, with a last dimension
of layers where weights are per layer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepbilevel_lab.replacement import replacing

_COLUMNS = ("weights", "agreement", "shared", "norms", "losses", "finite")
WEIGHT_QUANTILES = (5, 25, 50, 75, 95)
"""Percent; each is the key ``weight_p5`` and so on of an epoch's row, where a method weighs by agreement."""


class StepLog:
    """Collects the reports of an epoch; tensors are not read before somebody asks."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Tensor]] = {}

    def add(self, report: Any) -> None:
        """Keep what a step reported."""
        for name in _COLUMNS:
            if hasattr(report, name):
                self._rows.setdefault(name, []).append(getattr(report, name)[None])

    def columns(self) -> dict[str, Tensor]:
        """Return what was collected, one row per step, on the CPU."""
        for name, (held, *new) in self._rows.items():
            # What was read before, or comes from a checkpoint, is on the CPU already; new rows are fetched in one go.
            self._rows[name] = [torch.cat([held.cpu(), torch.cat(new).cpu()]) if new else held.cpu()]
        return {name: rows[0] for name, rows in self._rows.items()}

    def clear(self) -> None:
        """Begin anew."""
        self._rows = {}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the rows of the epoch so far."""
        return self.columns()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on after these rows."""
        self._rows = {name: [rows] for name, rows in state.items()}

    def summary(self) -> dict[str, Any]:
        """Return what a row of the history tells of steps, by the names of its fields.

        That is the mean loss, how weights were distributed, and how many steps and mini-batches were of no use.
        """
        columns = self.columns()
        weights, losses = columns["weights"], columns["losses"]
        learned = columns["shared"] > 0 if "shared" in columns else (weights != 0).flatten(1).any(dim=1)
        shared = {"shared": columns["shared"].double().mean().item()} if "shared" in columns else {}
        return {
            "loss": losses.double().mean().item(),
            "negative_share": (weights < 0).double().mean().item(),
            "zeroed_steps": int((~learned).sum()),
            "skipped_batches": int((~columns["finite"]).sum()),
            **shared,
            **_weight_quantiles(columns),
        }


def _weight_quantiles(columns: Mapping[str, Tensor]) -> dict[str, float]:
    """Return what a plot of weights over training needs, so that it can be drawn from the record alone."""
    if "agreement" not in columns:  # the weights of other methods are all the same
        return {}
    values = np.percentile(columns["weights"].double().numpy(), WEIGHT_QUANTILES)
    return {f"weight_p{q}": float(value) for q, value in zip(WEIGHT_QUANTILES, values, strict=True)}


def write_steps(folder: Path, epoch: int, columns: Mapping[str, Tensor]) -> None:
    """Write the steps of an epoch, whole or not at all; the same steps give the same bytes."""
    folder.mkdir(exist_ok=True)
    arrays: dict[str, Any] = {name: column.numpy() for name, column in columns.items()}
    with replacing(folder / f"epoch-{epoch:05d}.npz") as stream:
        np.savez_compressed(stream, **arrays)


def read_steps(folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the steps of all epochs of a run in their order, and the ``epoch`` of each; empty before the first."""
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    for path in sorted(folder.glob("epoch-*.npz"), key=_epoch_of):
        with np.load(path, allow_pickle=False) as archive:
            columns = {name: np.asarray(archive[name]) for name in archive.files}
        columns["epoch"] = np.full(len(columns["losses"]), _epoch_of(path))
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
    return {name: np.concatenate(columns) for name, columns in parts.items()}


def _epoch_of(path: Path) -> int:
    return int(path.stem.removeprefix("epoch-"))
