"""The cross-validated gradient: every mini-batch of a group validates the others, every parameter has its own weight.

    S1 = sum_i g_i,   S2 = sum_i g_i^2,   a = clamp((S1^2 - S2) / ((k - 1) S2), 0, 1),   gradient = a S1 / k

``a`` is the k-fold estimate of the share of a gradient that mini-batches of different images have in common: 1 where
all agree, 0 on average where they are independent, and what could be learned is what single images say. This is our
own rule, beyond the paper. Only S1, S2 and one g_i are held, whatever k is.

An optimizer that divides by the size of the gradients it gets, as Adam does, undoes the shrinking. For these ``a`` can
be applied to the update instead: the optimizer gets S1 / k, and its step goes a part ``a`` of the way.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from deepbilevel.choice import choose
from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import Gradients, add_gradients, silence_unless, widen_gradients
from deepbilevel.group_checks import check_num_batches
from deepbilevel.group_report import GroupReport
from deepbilevel.group_step import GroupStep
from deepbilevel.parameters import Parameters
from deepbilevel.sharing import Blank, Spread, wide_zeros
from deepbilevel.shrunken_updates import ShrunkenUpdates

Block = Literal["parameter", "filter", "layer", "model"]
Shrink = Literal["gradient", "update"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CrossValidatedReport(GroupReport):
    """What one step did. Tensors stay on the device.

    Attributes:
        weights: what each of the k mini-batches counted: ``1 / k``, or 0 where its gradient was not finite.
        shared: the mean of ``a`` over all parameters: how much of the gradient the mini-batches have in common.
        norms: length of each of the k gradients.
        losses: the k losses.
        finite: for each of the k mini-batches whether its gradient was finite.
    """

    shared: Tensor
    norms: Tensor

    @property
    def applied(self) -> bool:
        """Whether anything was learned: false when nothing was shared."""
        return bool(self.shared > 0)


class CrossValidated(GroupStep[CrossValidatedReport]):
    """Fill ``.grad`` with what the mini-batches of a group agree on; used like :class:`~deepbilevel.Bilevel`.

    Mini-batches need not carry the same labels, none is set apart for validation, and there is nothing to tune.

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
        block: what shares one ``a``: every single ``parameter``, the weights of an output channel (``filter``), of a
            module (``layer``; needs a module), or of the whole ``model``. Coarser blocks memorise more.
        shrink: what ``a`` is applied to. ``gradient``, for SGD: ``.grad`` is ``a S1 / k``. ``update``, for Adam and
            its kin: ``.grad`` is the mean ``S1 / k``, and steps of the optimizer between :meth:`fill` and the next
            :meth:`backward` change parameters by ``a`` times what they would. It holds ``a`` until then, and the
            parameters twice during a step.
        optimizer: the one whose updates are shrunk; for ``shrink="update"`` alone. It gets two hooks, which go when
            this object goes, and is not changed otherwise.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop.
        process_group: who works together: all processes of ``torch.distributed`` where it is initialised (``None``),
            nobody (``False``), or the members of a process group.
        spread: what they share: the mini-batches of one group (``"batches"``, unless given), or nothing but the
            result (``"groups"``): every process then has a group of its own, and gradients are averaged.
    """

    tolerates_bad_batches = True

    def __init__(
        self,
        model_or_parameters: Parameters,
        *,
        num_batches: int,
        block: Block = "parameter",
        shrink: Shrink = "gradient",
        optimizer: Optimizer | None = None,
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._optimizer = optimizer
        if shrink == "gradient" and optimizer is not None:
            raise ValueError(
                "optimizer is for shrink='update', got shrink='gradient'; drop the one or change the other"
            )
        self._choose(num_batches=num_batches, block=block, shrink=shrink)

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        self._share.check(settings["num_batches"])
        choose("block", settings["block"], get_args(Block))
        if settings["block"] == "layer":
            self._check_owners("block='layer'")
        if settings["block"] == "filter":
            self._share.check_shards(rows="block='filter'")
        choose("shrink", settings["shrink"], get_args(Shrink))
        if settings["shrink"] == "update" and not isinstance(self._optimizer, Optimizer):
            raise TypeError(
                "shrink='update' needs the optimizer whose updates it shrinks, an instance of torch.optim.Optimizer, "
                f"got {type(self._optimizer).__name__}; pass optimizer=..., or take shrink='gradient'"
            )
        self.num_batches: int = int(settings["num_batches"])
        self.block: Block = settings["block"]
        self.shrink: Shrink = settings["shrink"]
        self._updates = None
        if self.shrink == "update" and self._optimizer is not None:
            self._updates = ShrunkenUpdates(self._optimizer, self._parameters, self._share.own_parts)
        whole_model = [0] * len(self._parameters)
        self._blocks = self._blocks_of(self._owners if self.block == "layer" and self._owners else whole_model)
        self._forget()

    def _settings(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches, "block": self.block, "shrink": self.shrink}

    def _forget(self) -> None:
        self._sum: Gradients = {}
        self._squares: Gradients = {}  # per parameter or per filter
        self._square_sums: Tensor | None = None  # per layer or for the model
        self._sq_norms: list[Tensor] = []

    def _add(self, gradients: Gradients) -> None:
        if self._updates is not None:
            self._updates.factors = {}  # the gradient they belong to is no longer there
        sq_norms = self._blocks.sq_norms(gradients)
        sound = torch.isfinite(sq_norms).all()
        self._sq_norms.append(sq_norms.sum())
        gradients = widen_gradients(gradients)
        silence_unless(sound, gradients)
        if self.block in ("parameter", "filter"):
            for position, gradient in gradients.items():
                held = self._squares.get(position)
                if held is not None and self.block == "parameter":
                    held.addcmul_(gradient, gradient)  # without a buffer for the squares
                else:
                    squares = self._in_blocks(gradient.square())
                    self._squares[position] = squares if held is None else held.add_(squares)
        else:
            sq_norms = torch.where(sound, sq_norms, 0.0)
            self._square_sums = sq_norms if self._square_sums is None else self._square_sums + sq_norms
        add_gradients(self._sum, gradients)

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, CrossValidatedReport]:
        losses, norms = self._of_group(losses, torch.stack(self._sq_norms).sqrt())
        if self._square_sums is None:
            self._over_group(self._sum, self._squares, blanks=[wide_zeros, self._no_squares])
        else:
            self._square_sums = self._over_group(self._sum, numbers=self._square_sums)
        finite = torch.isfinite(norms)
        count = finite.sum().to(norms.dtype)
        if self._square_sums is None:
            shared = self._shrink_finely(count)
        else:
            shared = self._shrink_blocks(count, self._square_sums)
        weights = finite / count.clamp(min=1)
        report = CrossValidatedReport(shared=shared, weights=weights, norms=norms, losses=losses, finite=finite)
        return self._sum, finite, report

    def _beside_gradients(self) -> list[tuple[Gradients, Blank]]:
        return [] if self._updates is None else [(self._updates.factors, self._no_factor)]

    def _no_factor(self, parameter: Tensor) -> Tensor:
        return self._no_squares(parameter) if self.block in ("parameter", "filter") else wide_zeros(parameter).sum()

    def _shrink_finely(self, count: Tensor) -> Tensor:
        total = torch.zeros((), device=count.device)
        for position, gradient in self._sum.items():
            squares = self._squares.pop(position)
            factors = _agreement(self._in_blocks(gradient.square()), squares, count)
            total += factors.sum() * (gradient.numel() / max(factors.numel(), 1))
            if self._updates is None:
                gradient.mul_(factors)
            else:
                self._updates.factors[position] = factors
            gradient.div_(count.clamp(min=1))
        return self._mean_over_parameters(total, self._sum)

    def _in_blocks(self, squares: Tensor) -> Tensor:
        """Add up the squares of each output channel, where that is the block; entries of a vector are channels."""
        if self.block == "parameter" or squares.ndim < 2:
            return squares
        return squares.sum(dim=tuple(range(1, squares.ndim)), keepdim=True)

    def _no_squares(self, parameter: Tensor) -> Tensor:
        return self._in_blocks(wide_zeros(parameter))

    def _shrink_blocks(self, count: Tensor, squares: Tensor) -> Tensor:
        factors = _agreement(self._blocks.sq_norms(self._sum), squares, count)
        blocks = self._blocks.present(self._sum)
        scales = factors if self._updates is None else torch.ones_like(factors)
        self._blocks.each(torch._foreach_mul_, self._sum, scales / count.clamp(min=1))  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        if self._updates is not None:
            for positions, factor in zip(blocks, factors.unbind(), strict=True):
                self._updates.factors.update(dict.fromkeys(positions, factor))
        sizes = [float(sum(self._sum[position].numel() for position in positions)) for positions in blocks]
        total = (factors * torch.tensor(sizes, device=factors.device)).sum()
        return self._mean_over_parameters(total, self._sum)


def _agreement(joint: Tensor, squares: Tensor, count: Tensor) -> Tensor:
    """Return ``clamp((joint - squares) / ((count - 1) squares), 0, 1)``, 0 where nothing can be compared.

    ``joint`` and ``squares`` are overwritten.
    """
    joint.sub_(squares).div_(squares.mul_(count - 1))
    # 0 / 0, and, if a single mini-batch is left, something / 0.
    joint.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return joint.clamp_(0, 1).mul_(count > 1)
