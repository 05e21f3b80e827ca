"""What a rule is: a frozen value whose accumulator turns the k gradients of a group into one.

A new rule is one file: a dataclass with its settings and checks, and an :class:`Accumulator` with its equation. A line
in ``rules/catalog.py`` gives it a name; docs/own-rules.md has a whole one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from deepbilevel.gradients import Gradients, Layout, wide_zeros

Memory = dict[str, Any]
"""What a rule keeps from one group to the next: tensors, and gradients by position. Empty for most rules."""

ADDED_LATER = {"added later": True}
"""Metadata of a setting that a rule did not always have: at its default it is no part of a run's id, so old ids hold.

That default can never change, and must be a plain value: ``default_factory`` is not looked at."""

Blank = Callable[[Tensor], Tensor]
"""Makes the zeros that stand for a sum to which no mini-batch contributed, from its parameter."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Report:
    """What one step did. Tensors stay on the device, so a report nobody reads costs no waiting.

    Attributes:
        weights: the weight of each mini-batch that was trained on.
        losses: the k losses.
        finite: for each of the k mini-batches whether its gradient was finite.
    """

    weights: Tensor
    losses: Tensor
    finite: Tensor

    @property
    def skipped(self) -> tuple[int, ...]:
        """Positions in the group of mini-batches whose gradient was not finite, counted from zero."""
        return tuple(torch.nonzero(~self.finite).flatten().tolist())

    @property
    def applied(self) -> bool:
        """Whether anything was learned; it was not if the step's gradient is zero."""
        return bool((self.weights != 0).any())


ReportT = TypeVar("ReportT", bound=Report, covariant=True)


@dataclass(frozen=True, eq=False)
class Outcome(Generic[ReportT]):
    """What a group becomes.

    Attributes:
        gradients: the new ``.grad``.
        report: what happened.
        factors: the part of the optimizer's update to keep, for rules that shrink the update instead of the gradient.
        blank_factor: makes the factor of a parameter that no mini-batch touched.
    """

    gradients: Gradients
    report: ReportT
    factors: Gradients | None = None
    blank_factor: Blank = wide_zeros


class Accumulator(ABC, Generic[ReportT]):
    """Takes in the gradients of one group, one mini-batch at a time.

    Numbers per mini-batch go into :attr:`rows`, sums over mini-batches into buffers that :meth:`sums` names. Both can
    be completed from outside before :meth:`finish`, so mini-batches may have been added to several accumulators.

    Attributes:
        rows: place in the group -> numbers noted for that mini-batch: one or more tensors, which have the same shape
            in every row.
    """

    def __init__(self) -> None:
        self.rows: dict[int, Sequence[Tensor] | Tensor] = {}

    @abstractmethod
    def add(self, gradients: Gradients, place: int) -> None:
        """Take in a mini-batch's gradients, which may be kept or overwritten.

        Args:
            gradients: of one mini-batch.
            place: of the mini-batch in the group, counted from zero.
        """

    @abstractmethod
    def finish(self, losses: Tensor) -> Outcome[ReportT]:
        """Turn what was taken in into one gradient. Called once, when all k mini-batches are in.

        Args:
            losses: of the k mini-batches, for the report.
        """

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        """Yield the sums over mini-batches, with zeros for a parameter that has none; they are completed in place."""
        raise NotImplementedError(f"{type(self).__name__} has no sums that can be added up; set spreads = False")

    def columns(self) -> list[Tensor]:
        """Return the numbers of all k mini-batches in their order: ``[k, ...]`` for each number of a row."""
        rows = [self.rows[place] for place in sorted(self.rows)]
        return [torch.stack(column) for column in zip(*rows, strict=True)]


@dataclass(frozen=True)
class Rule(ABC, Generic[ReportT]):
    """How the k gradients of a group become one. Subclasses are frozen dataclasses that check their fields.

    Attributes:
        kind: its name in the catalog and in specs.
        description: one line for people who choose.
        splits: whether it looks at the mini-batches of a group one by one; otherwise the group is one batch.
        matches: whether its mini-batches should carry the same labels.
        validates: whether the first mini-batch is only for validation.
        compares_with_first: whether every other mini-batch needs the gradient of the first one. Its accumulator then
            has a method ``validate(gradients)``, which :meth:`Accumulator.add` calls for place 0.
        overwrites_first: whether it writes to the gradient of the first mini-batch, which may be on its way to other
            processes.
        tolerates_bad_batches: whether a mini-batch whose gradient is not finite is left out, instead of spoiling the
            step.
        takes_products: whether its accumulator can work with gradients of matrices that are kept as two factors
            (:class:`~deepbilevel.gradients.LazyGradient`).
        spreads: whether its accumulator can be filled in parts (:attr:`Accumulator.rows`, :meth:`Accumulator.sums`).
        min_batches: the smallest group that makes sense.
    """

    kind: ClassVar[str]
    description: ClassVar[str]
    splits: ClassVar[bool] = True
    matches: ClassVar[bool] = False
    validates: ClassVar[bool] = False
    compares_with_first: ClassVar[bool] = False
    overwrites_first: ClassVar[bool] = False
    tolerates_bad_batches: ClassVar[bool] = True
    takes_products: ClassVar[bool] = False
    spreads: ClassVar[bool] = True
    min_batches: ClassVar[int] = 2

    @abstractmethod
    def start(self, layout: Layout, num_batches: int, memory: Memory) -> Accumulator[ReportT]:
        """Return the accumulator of a new group.

        Args:
            layout: how the parameters of the model belong together.
            num_batches: in the group.
            memory: what the rule keeps between groups. The accumulator reads it, and changes it in ``finish`` only, so
                that a group that is dropped half-way leaves no trace.
        """

    def silently_left_out(self, finite: Tensor) -> Tensor:
        """Return those of the k flags whose mini-batch is not in the gradient if it is not finite.

        A loss scaler looks for overflow in ``.grad``. It must be told of these, and of no others, for which it would
        lower its scale twice.
        """
        return finite if self.tolerates_bad_batches else finite[:0]

    @property
    def shrinks_updates(self) -> bool:
        """Whether its outcome has factors for the optimizer's step; then it needs to know the optimizer."""
        return False

    @property
    def shrinks_gradients(self) -> bool:
        """Whether it says by the size of gradients what is to be learned; some optimizers divide by that size."""
        return False

    @property
    def needs_layers(self) -> str | None:
        """The setting that needs to know which module owns which parameter, if one does."""
        return None

    @property
    def needs_whole_parameters(self) -> str | None:
        """Why it cannot work on parts of parameters, if it cannot."""
        return None

    @property
    def needs_whole_rows(self) -> str | None:
        """The setting that needs all weights of an output channel in one place, if one does."""
        return None

    def check_memory(self, memory: Memory, layout: Layout) -> Memory:
        """Return a memory from a checkpoint, on the device of the parameters; refuse one that does not fit them."""
        if memory:
            raise ValueError(f"{type(self).__name__} keeps nothing between groups, got {sorted(memory)}")
        return memory
