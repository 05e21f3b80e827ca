"""The cross-validated gradient: every mini-batch of a group validates the others, every parameter has its own weight.

    S1 = sum_i g_i,   S2 = sum_i g_i^2,   a = clamp((S1^2 - S2) / ((k - 1) S2), 0, 1),   gradient = a S1 / k

``a`` is the k-fold estimate of the share of a gradient that mini-batches of different images have in common: 1 where
all agree, 0 on average where they are independent, and what could be learned is what single images say. This is our
own rule, beyond the paper. Only S1, S2 and one g_i are held, whatever k is.

With the signal ``P = (S1^2 - S2) / (k (k - 1))`` that mini-batches share and their power ``T = S2 / k``, ``a`` is
``P / (P + c N)``: ``N = T - P`` is the noise of one mini-batch, and the ``strength`` c is 1. The best linear shrinkage
of the mean of k has c = 1/k. One group is poor evidence for P and T, so both can be averaged over groups
(``momentum``), which takes two more buffers between groups.

An optimizer that divides by the size of the gradients it gets, as Adam does, undoes the shrinking. For these ``a`` can
be applied to the update instead: the optimizer gets S1 / k, and its step goes a part ``a`` of the way.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from deepbilevel.checks import check_real, choose
from deepbilevel.contract import ADDED_LATER, Accumulator, Blank, Memory, Outcome, Rule
from deepbilevel.gradients import (
    Gradients,
    Layout,
    Parameters,
    add_gradients,
    blend_gradients,
    silence_unless,
    wide_zeros,
    widen_gradients,
)
from deepbilevel.rules.averages import check_average, check_momentum
from deepbilevel.rules.elementwise import ElementwiseReport
from deepbilevel.step import GroupStep

Block = Literal["parameter", "filter", "layer", "model"]
Shrink = Literal["gradient", "update"]


@dataclass(frozen=True)
class CrossValidatedRule(Rule[ElementwiseReport]):
    """The settings of the cross-validated gradient.

    Attributes:
        block: what shares one ``a``: every single ``parameter``, the weights of an output channel (``filter``), of a
            module (``layer``; needs a module), or of the whole ``model``. Coarser blocks memorise more.
        shrink: what ``a`` is applied to. ``gradient``, for SGD: ``.grad`` is ``a S1 / k``. ``update``, for Adam and
            its kin: ``.grad`` is the mean ``S1 / k``, and steps of the optimizer between ``fill`` and the next
            ``backward`` change parameters by ``a`` times what they would. It holds ``a`` until then, and the parameters
            twice during a step.
        strength: c, how much the noise of a mini-batch counts; smaller values shrink less.
        momentum: how much of P and T is carried over from the groups before, from 0 (the current group alone) to less
            than 1. Keep ``1 / (1 - momentum)`` far below the groups of an epoch, or images are compared with
            themselves.
    """

    kind: ClassVar[str] = "cross-validated"
    description: ClassVar[str] = "what the mini-batches of a group agree on, parameter by parameter"

    block: Block = "parameter"
    shrink: Shrink = "gradient"
    strength: float = field(default=1.0, metadata=ADDED_LATER)
    momentum: float = field(default=0.0, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        choose("block", self.block, get_args(Block))
        choose("shrink", self.shrink, get_args(Shrink))
        check_real("strength", self.strength)
        if not 0 < self.strength < math.inf:
            raise ValueError(
                f"strength must be positive and finite, got {self.strength}; 1 counts the noise of one mini-batch, "
                "1 / num_batches that of their mean"
            )
        check_momentum(self.momentum)

    @property
    def shrinks_updates(self) -> bool:
        """Whether the optimizer's step is shrunk instead of the gradient."""
        return self.shrink == "update"

    @property
    def shrinks_gradients(self) -> bool:
        """Whether the gradient is shrunk."""
        return self.shrink == "gradient"

    @property
    def needs_layers(self) -> str | None:
        """Blocks of layers do."""
        return "block='layer'" if self.block == "layer" else None

    @property
    def needs_whole_rows(self) -> str | None:
        """Blocks of filters do."""
        return "block='filter'" if self.block == "filter" else None

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "_Powers":
        """Return the accumulator of a new group."""
        return (_Fine if self.block in ("parameter", "filter") else _Coarse)(self, layout, memory)

    def factor(self, agreement: Tensor) -> Tensor:
        """Return ``a`` from ``P / T``, which is overwritten; 0 where there is neither signal nor noise."""
        agreement.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0).clamp_(0, 1)
        return agreement if self.strength == 1 else agreement.div_(agreement + self.strength * (1 - agreement))

    def check_memory(self, memory: Memory, layout: Layout) -> Memory:
        """Refuse averages of other parameters."""
        if not memory or not self.momentum:
            return super().check_memory(memory, layout)
        if set(memory) != {"signal", "power"}:
            raise ValueError(f"memory has the keys {sorted(memory)}, expected ['power', 'signal']")
        shapes = self.start(layout, self.min_batches, {}).shapes()
        return {name: check_average(name, average, shapes) for name, average in memory.items()}


class _Powers(Accumulator[ElementwiseReport]):
    """Sums up gradients and notes their squared norms; squares are the subclass's.

    Args:
        rule: the settings.
        layout: of the model.
        memory: averages of signal and power, where the rule has a momentum.
    """

    def __init__(self, rule: CrossValidatedRule, layout: Layout, memory: Memory) -> None:
        super().__init__()
        self._rule = rule
        self._layout = layout
        self._memory = memory
        self._averages: dict[str, Gradients] = {"signal": {}, "power": {}}
        self._blocks = layout.layers if rule.block == "layer" else layout.model
        self._sum: Gradients = {}  # S1

    def add(self, gradients: Gradients, place: int) -> None:
        sq_norms = self._blocks.sq_norms(gradients)
        self.rows[place] = (sq_norms,)
        gradients = widen_gradients(gradients)
        silence_unless(torch.isfinite(sq_norms).all(), gradients)
        self._add_squares(gradients)
        add_gradients(self._sum, gradients)

    def _add_squares(self, gradients: Gradients) -> None:
        """Add to S2, where it is not known from the rows."""

    def finish(self, losses: Tensor) -> Outcome[ElementwiseReport]:
        (sq_norms,) = self.columns()  # [k, blocks]
        finite = torch.isfinite(sq_norms).all(dim=1)
        count = finite.sum().to(sq_norms.dtype)
        factors, total = self._shrink(torch.where(finite[:, None], sq_norms, 0.0), count)
        if self._rule.momentum:
            self._memory.update({name: {**self._memory.get(name, {}), **new} for name, new in self._averages.items()})
        report = ElementwiseReport(
            shared=self._layout.mean(total, self._sum),
            weights=finite / count.clamp(min=1),
            norms=sq_norms.sum(dim=1).sqrt(),
            losses=losses,
            finite=finite,
        )
        return Outcome(self._sum, report, factors if self._rule.shrinks_updates else None, self._blank_factor)

    @abstractmethod
    def _shrink(self, sq_norms: Tensor, count: Tensor) -> tuple[Gradients, Tensor]:
        """Make S1 the gradient; return ``a`` in shapes that broadcast to parameters, and its sum over all numbers.

        Args:
            sq_norms: of the finite mini-batches, 0 for the others, shape ``[k, blocks]``.
            count: how many are finite.
        """

    @abstractmethod
    def shapes(self) -> dict[int, Tensor]:
        """Return tensors like those that are averaged, by their places in the memory."""

    def _factor(self, place: int, joint: Tensor, squares: Tensor, count: Tensor) -> Tensor:
        """Return ``a`` from ``S1^2`` and ``S2``, which are overwritten; 0 if there are not two to compare."""
        signal, power = joint.sub_(squares), squares.mul_(count - 1)  # k (k - 1) times P and T
        if self._rule.momentum:
            pairs = (count * (count - 1)).clamp(min=1)
            signal = self._average("signal", place, signal.div_(pairs), count).clone()  # the average itself stays
            power = self._average("power", place, power.div_(pairs), count)
        return self._rule.factor(signal.div_(power)).mul_(count > 1)

    def _average(self, name: str, place: int, now: Tensor, count: Tensor) -> Tensor:
        """Return the average over groups with this one in it, which is overwritten, and note it."""
        kept = torch.where(count > 1, now.new_full((), self._rule.momentum), 1.0)
        held = {place: average} if (average := self._memory.get(name, {}).get(place)) is not None else {}
        # The average needs no correction for its start from zero: only the ratio of signal to power counts.
        self._averages[name].update(blend_gradients(held, {place: now}, kept))
        return now

    def _blank_factor(self, parameter: Tensor) -> Tensor:
        """Return the factor of a parameter that no mini-batch touched."""
        return wide_zeros(parameter).sum()


class _Fine(_Powers):
    """One factor for every parameter, or for every output channel."""

    def __init__(self, rule: CrossValidatedRule, layout: Layout, memory: Memory) -> None:
        super().__init__(rule, layout, memory)
        self._squares: Gradients = {}  # S2

    def _add_squares(self, gradients: Gradients) -> None:
        for position, gradient in gradients.items():
            held = self._squares.get(position)
            if held is not None and self._rule.block == "parameter":
                held.addcmul_(gradient, gradient)  # without a buffer for the squares
            else:
                squares = self._in_blocks(gradient.square())
                self._squares[position] = squares if held is None else held.add_(squares)

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        yield [(self._sum, wide_zeros), (self._squares, self._blank_factor)]

    def _shrink(self, sq_norms: Tensor, count: Tensor) -> tuple[Gradients, Tensor]:
        factors: Gradients = {}
        total = torch.zeros((), device=count.device)
        for position, gradient in self._sum.items():
            joint = self._in_blocks(gradient.square())
            factor = self._factor(position, joint, self._squares.pop(position), count)
            total += factor.sum() * (gradient.numel() / max(factor.numel(), 1))
            if self._rule.shrinks_updates:
                factors[position] = factor
            else:
                gradient.mul_(factor)
            gradient.div_(count.clamp(min=1))
        return factors, total

    def shapes(self) -> dict[int, Tensor]:
        return dict(enumerate(map(self._blank_factor, self._layout.parameters)))

    def _blank_factor(self, parameter: Tensor) -> Tensor:
        return self._in_blocks(wide_zeros(parameter))

    def _in_blocks(self, squares: Tensor) -> Tensor:
        """Add up the squares of each output channel, where that is the block; entries of a vector are channels."""
        if self._rule.block == "parameter" or squares.ndim < 2:
            return squares
        return squares.sum(dim=tuple(range(1, squares.ndim)), keepdim=True)


class _Coarse(_Powers):
    """One factor for every layer, or for the whole model: squared norms of mini-batches are all it needs for S2."""

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        yield [(self._sum, wide_zeros)]

    def _shrink(self, sq_norms: Tensor, count: Tensor) -> tuple[Gradients, Tensor]:
        factors = self._factor(0, self._blocks.sq_norms(self._sum), sq_norms.sum(dim=0), count)
        scales = torch.ones_like(factors) if self._rule.shrinks_updates else factors
        self._blocks.multiply(self._sum, scales / count.clamp(min=1))
        blocks = self._blocks.present(self._sum)
        sizes = [float(sum(self._sum[position].numel() for position in positions)) for positions in blocks]
        total = (factors * torch.tensor(sizes, device=factors.device)).sum()
        return {p: factor for positions, factor in zip(blocks, factors.unbind(), strict=True) for p in positions}, total

    def shapes(self) -> dict[int, Tensor]:
        numbers = wide_zeros(self._layout.parameters[0]).new_zeros(len(self._blocks.present({})))
        return {0: numbers}


class CrossValidated(GroupStep[ElementwiseReport]):
    """Fill ``.grad`` with what the mini-batches of a group agree on; used like :class:`~deepbilevel.Bilevel`.

    Mini-batches need not carry the same labels, and none is set apart for validation.

    >>> from deepbilevel import CrossValidated
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> rule = CrossValidated(model, num_batches=2)
    >>> for x in torch.tensor([[[1.0, 1.0]], [[1.0, -1.0]]]):
    ...     rule.backward(model(x).sum())
    >>> report = rule.fill()
    >>> model.weight.grad  # both agree on the first parameter and contradict each other on the second
    tensor([[1., 0.]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group.
        block: which parameters share a factor; see :class:`CrossValidatedRule` for this and the next three.
        shrink: ``"gradient"``, or ``"update"`` for Adam and its kin.
        strength: how much is shrunk.
        momentum: over how many groups the evidence is averaged.
        optimizer: whose updates are shrunk; only with ``shrink="update"``.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop.
    """

    def __init__(
        self,
        model_or_parameters: Parameters,
        *,
        num_batches: int,
        block: Block = "parameter",
        shrink: Shrink = "gradient",
        strength: float = 1.0,
        momentum: float = 0.0,
        optimizer: Optimizer | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        rule = CrossValidatedRule(block=block, shrink=shrink, strength=strength, momentum=momentum)
        super().__init__(model_or_parameters, rule, num_batches=num_batches, optimizer=optimizer, scaler=scaler)
