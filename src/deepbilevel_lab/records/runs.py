"""The record of a run: what it was, on what it ran, and everything measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from deepbilevel_lab.records.json_values import FORMAT, from_json, if_measured

Status: TypeAlias = Literal["done", "failed", "missing", "running", "interrupted"]
"""How a run stands; ``missing`` is one that a sweep plans and nobody has made."""
STATUSES: tuple[Status, ...] = get_args(Status)
FIGURES = ("test", "best", "picked", "selection", "train", "train_clean", "gap", "seconds")
"""``test`` and the training figures are those of the last epoch. ``best`` is the best epoch's, chosen by looking at the
test images; ``picked`` that of the epoch with the best ``selection``, as anybody can choose it."""
PlainSpec: TypeAlias = Mapping[str, Any]
"""A spec as it was written. Version 0.1 could write what no spec of today says, so it is not read any further here."""


def show_figure(value: float | None) -> str:
    """Write a figure with two digits, and a dash where there is none.

    >>> show_figure(47.618), show_figure(None)
    ('47.62', '-')
    """
    return "-" if value is None else f"{value:.2f}"


@dataclass(frozen=True)
class Row:
    """An epoch: losses and weights of its steps, and, if it was evaluated, results in percent.

    Attributes:
        epoch: counted from 1.
        lr: of its last step.
        loss: the mean over mini-batches.
        negative_share: of the weights.
        zeroed_steps: steps in which nothing was learned.
        skipped_batches: mini-batches without a finite gradient.
        shared: the part of the gradients that mini-batches share, where a method measures it.
        weight_p5: and so on, percentiles of the weights, where a method weighs by agreement.
        train: on labels as given; ``train_clean`` on clean ones, where they are known and others.
        selection: on images set aside, with labels as noisy as those trained on.
        gap: train less test.
    """

    epoch: int
    lr: float | None
    loss: float | None
    negative_share: float | None
    zeroed_steps: int = 0
    skipped_batches: int = 0
    shared: float | None = if_measured()
    weight_p5: float | None = if_measured()
    weight_p25: float | None = if_measured()
    weight_p50: float | None = if_measured()
    weight_p75: float | None = if_measured()
    weight_p95: float | None = if_measured()
    train: float | None = if_measured()
    train_clean: float | None = if_measured()
    selection: float | None = if_measured()
    selection_clean: float | None = if_measured()
    test: float | None = if_measured()
    test_clean: float | None = if_measured()
    gap: float | None = if_measured()

    def figure(self, name: str) -> float | None:
        """Return a number by its name."""
        value: float | None = getattr(self, name)
        return None if value is None else float(value)


@dataclass(frozen=True)
class Images:
    """How many there were."""

    train: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Seconds:
    """How long a run took, over all the processes that worked on it."""

    wall: float | None = None
    cpu: float | None = None
    training: float | None = None


@dataclass(frozen=True)
class Environment:
    """What something ran on.

    Attributes:
        commit: of our source, with a plus if files were changed since; None if it is not under git.
    """

    python: str | None = None
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    commit: str | None = None
    system: str | None = None
    processor: str | None = None
    cores: int | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Known:
    """What every version has written into a spec."""

    seed: int
    epochs: int


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a run was and measured.

    Attributes:
        error: why it failed.
        process: who writes it; not in records that were exported, as ``data_dir``.
        final: the last epoch that was evaluated.
        best: the one with the best test result. To be told beside the last, never instead.
    """

    format: int = FORMAT
    id: str
    name: str
    status: Status
    error: str | None
    process: int | None = if_measured()
    processes: int = 1
    updated: str = ""
    spec: PlainSpec
    metric: str = "accuracy"
    final: Row | None
    best: Row | None
    history: tuple[Row, ...]
    images: Images = field(default_factory=Images)
    parameters: int | None = None
    steps: int | None = None
    seconds: Seconds = field(default_factory=Seconds)
    samples_per_second: float | None = None
    data_dir: str | None = if_measured()
    environment: Environment = field(default_factory=Environment)

    def __post_init__(self) -> None:
        from_json(_Known, self.spec, "spec")

    @property
    def seed(self) -> int:
        """The seed in the spec."""
        return self.spec["seed"]

    @property
    def epochs(self) -> int:
        """How many epochs the run is to have."""
        return self.spec["epochs"]

    @property
    def settings(self) -> str:
        """The spec in one line; runs whose settings are equal differ in nothing but the seed."""
        return json.dumps({**self.spec, "seed": None}, sort_keys=True)

    def figure(self, name: str) -> float | None:
        """Return a figure, None where there is none."""
        return self.figures.get(name)

    @property
    def figures(self) -> dict[str, float | None]:
        """What was measured, by the names in ``FIGURES``; None where there is nothing yet."""
        final, picked = self.final, self._picked
        return {
            "test": None if final is None else final.test,
            "best": None if self.best is None else self.best.test,
            "picked": None if picked is None else picked.test,
            "selection": None if final is None else final.selection,
            "train": None if final is None else final.train,
            "train_clean": None if final is None else final.train_clean,
            "gap": None if final is None else final.gap,
            "seconds": self.seconds.wall,
        }

    @property
    def _picked(self) -> Row | None:
        """The epoch with the best result on the images set aside for selection, the first of equals."""
        rows = [row for row in self.history if row.selection is not None]
        return max(rows, key=lambda row: row.selection or 0.0, default=None)
