"""The paper's rule: the first mini-batch validates, the others are weighted by their agreement with it.

    w_i = <g_v, g_i> / (|g_i|^2 / lam + mu),   W = sum_i |w_i|,   gradient = sum_i (w_i / W) g_i

Each ``w_i`` needs only g_v and g_i, and dividing by W at the end equals normalising first. So three buffers of the
model's size are enough for any k: g_v, the current g_i and the running sum.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.checks import check_flag, choose
from deepbilevel.contract import Accumulator, Blank, Memory, Outcome, Report, Rule
from deepbilevel.gradients import (
    AnyGradients,
    Blocks,
    Gradients,
    Layout,
    Parameters,
    WeightedGradientSum,
    wide_zeros,
)
from deepbilevel.rule import bilevel_weights, check_regularisation, cosines, l1_divisor
from deepbilevel.step import GroupStep

Weighting = Literal["agreement", "absolute", "clipped", "random", "cosine"]
Weigh = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""``<g_v, g_i>``, ``|g_i|^2``, ``|g_v|`` and i -> ``w_i``; zero where a number is not finite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BilevelReport(Report):
    """What one bilevel step did.

    With ``per_layer=True``, weights, agreement and norms have a second dimension, one column per layer.

    Attributes:
        weights: the weights that were applied to the ``k - 1`` training mini-batches.
        raw_weights: the same before normalisation.
        agreement: cosine between each training gradient and the validation gradient.
        norms: length of each of the k gradients, validation first.
        losses: the k losses, validation first.
        finite: for each of the k mini-batches whether its gradient was finite.
    """

    raw_weights: Tensor
    agreement: Tensor
    norms: Tensor


@dataclass(frozen=True)
class BilevelRule(Rule[BilevelReport]):
    """The settings of the paper's rule.

    Attributes:
        mu: keeps small gradients from getting large weights (the paper's mu-hat).
        lam: how far the linear approximation of the validation loss is trusted (lambda-hat).
        normalize: divide the weights by their L1 norm, so that the usual learning rate stays right.
        per_layer: weight and normalise the gradients of each module on their own.
        weighting: ``"agreement"`` is the rule; the others are controls to compare it with (``rules/controls.py``).
    """

    kind: ClassVar[str] = "bilevel"
    description: ClassVar[str] = "the paper's rule: weights by agreement with validation"
    matches: ClassVar[bool] = True  # the mini-batches of a group should carry the same labels
    validates: ClassVar[bool] = True  # the first one is not trained on
    compares_with_first: ClassVar[bool] = True
    takes_products: ClassVar[bool] = True  # inner products and sums are all it needs of a gradient

    mu: float = 0.01
    lam: float = 1.0
    normalize: bool = True
    per_layer: bool = False
    weighting: Weighting = "agreement"

    def __post_init__(self) -> None:
        check_regularisation(lam=self.lam, mu=self.mu)
        check_flag("normalize", self.normalize)
        check_flag("per_layer", self.per_layer)
        choose("weighting", self.weighting, get_args(Weighting))

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "WeighedByFirst":
        """Return the accumulator of a new group."""
        return WeighedByFirst(self, layout, num_batches)

    def weigh(self, dots: Tensor, sq_norms: Tensor, validation_norms: Tensor, place: int) -> Tensor:
        """Return the raw weight of a mini-batch, one entry per block."""
        return bilevel_weights(dots, sq_norms, lam=self.lam, mu=self.mu)

    @property
    def needs_layers(self) -> str | None:
        """The setting that needs a module instead of a list of parameters."""
        return "per_layer=True" if self.per_layer else None

    @property
    def needs_whole_parameters(self) -> str | None:
        """Why sharded parameters are refused: each process would draw other random weights."""
        return "weighting='random' draws numbers in each process" if self.weighting == "random" else None


class WeighedByFirst(Accumulator[BilevelReport]):
    """Streams over a group: keeps the validation gradient and the weighted sum of the others.

    Args:
        rule: the settings.
        layout: of the model: one weight for all parameters, or one per layer.
        num_batches: k.
    """

    def __init__(self, rule: BilevelRule, layout: Layout, num_batches: int) -> None:
        super().__init__()
        self._rule = rule
        self._blocks: Blocks = layout.layers if rule.per_layer else layout.model
        self._sum = WeightedGradientSum(self._blocks)
        self._weigh: Weigh = rule.weigh
        if rule.weighting != "agreement":
            from deepbilevel.rules.controls import weigh_by_control  # imported here because few need it

            self._weigh = weigh_by_control(rule, num_batches)

    def add(self, gradients: AnyGradients, place: int) -> None:
        """Keep the first mini-batch's gradient; weight every other one and add it to the sum."""
        if place == 0:
            sq_norms = self.validate(gradients)
            # Validation has no inner product and no weight; fillers keep all rows alike, and `finish` skips them.
            self.rows[0] = sq_norms, sq_norms, sq_norms
            return
        sq_norms, (dots,) = self._blocks.measure(gradients, [self._validation])
        # One bad layer discards the mini-batch as a whole: its other layers came from the same pass.
        finite = torch.isfinite(sq_norms).all() & self._validation_is_finite
        dots = torch.where(finite, dots, torch.nan)
        weights = self._weigh(dots, sq_norms, self._validation_norms, place)
        self._sum.add(weights, gradients)  # a weight of zero silences a gradient that is not finite
        self.rows[place] = sq_norms, dots, weights

    def validate(self, gradients: AnyGradients) -> Tensor:
        """Make these the validation gradients; return their squared norms."""
        sq_norms = self._blocks.sq_norms(gradients)
        self._compare_with(gradients, sq_norms, torch.isfinite(sq_norms).all())
        return sq_norms

    def _compare_with(self, gradients: AnyGradients, sq_norms: Tensor, finite: Tensor) -> None:
        self._validation, self._validation_norms, self._validation_is_finite = gradients, sq_norms.sqrt(), finite

    def finish(self, losses: Tensor) -> Outcome[BilevelReport]:
        """Divide the sum by the L1 norm of the weights."""
        sq_norms, dots, raw_weights = self.columns()
        rule, norms = self._rule, sq_norms.sqrt()
        agreement = cosines(dots[1:], norms[1:], self._validation_norms)
        settings = {"normalize": rule.normalize, "per_layer": rule.per_layer}
        return normalised(self._sum, raw_weights[1:], agreement, norms, losses, **settings)

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        """Yield the weighted sum; for several processes only."""
        yield [(self._sum.gradients, wide_zeros)]


def normalised(
    total: WeightedGradientSum,
    raw_weights: Tensor,
    agreement: Tensor,
    norms: Tensor,
    losses: Tensor,
    *,
    normalize: bool,
    per_layer: bool,
) -> Outcome[BilevelReport]:
    """Return ``total / sum_i |w_i|`` and its report; the exact and the k-fold rule end like this, too.

    Args:
        total: ``sum_i w_i g_i``.
        raw_weights: ``w_i`` of the mini-batches that train, shape ``[n, blocks]``.
        agreement: their cosines, of the same shape.
        norms: of all gradients, shape ``[k, blocks]``.
        losses: shape ``[k]``.
        normalize: as in :class:`BilevelRule`; if false, a group without weights is still zero.
        per_layer: as in :class:`BilevelRule`.
    """
    divisors = l1_divisor(raw_weights)
    if not normalize:
        divisors = torch.where(torch.isfinite(divisors), 1.0, divisors)  # an infinite one makes the gradient zero
    columns = {
        "weights": torch.nan_to_num(raw_weights / divisors, nan=0.0),
        "raw_weights": raw_weights,
        "agreement": agreement,
        "norms": norms,
    }
    if not per_layer:
        columns = {name: column.squeeze(1) for name, column in columns.items()}
    finite = torch.isfinite(norms).all(dim=1)
    return Outcome(total.divided_by(divisors), BilevelReport(**columns, losses=losses, finite=finite))


class Bilevel(GroupStep[BilevelReport]):
    """Fill ``.grad`` with training gradients weighted by their agreement with a validation gradient.

    ``.grad = sum_i (w_i / W) g_i`` with ``w_i = <g_v, g_i> / (|g_i|^2 / lam + mu)`` and ``W = sum_i |w_i|``, where
    g_v is the gradient of the group's first mini-batch. Only g_v, one g_i and the sum are held, whatever k is.

    >>> from deepbilevel import Bilevel
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> bilevel = Bilevel(model, num_batches=3)
    >>> for x in torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]):
    ...     bilevel.backward(model(x).sum())
    >>> bilevel.fill().weights  # the first training mini-batch agrees, the second is orthogonal
    tensor([1., 0.])
    >>> model.weight.grad
    tensor([[1., 0.]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group.
        mu: as in :class:`BilevelRule`, and so are the other settings of the rule.
        lam: as in :class:`BilevelRule`.
        normalize: as in :class:`BilevelRule`.
        per_layer: as in :class:`BilevelRule`; needs a module.
        weighting: as in :class:`BilevelRule`.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop.
    """

    def __init__(
        self,
        model_or_parameters: Parameters,
        *,
        num_batches: int,
        mu: float = 0.01,
        lam: float = 1.0,
        normalize: bool = True,
        per_layer: bool = False,
        weighting: Weighting = "agreement",
        scaler: GradScaler | None = None,
    ) -> None:
        rule = BilevelRule(mu=mu, lam=lam, normalize=normalize, per_layer=per_layer, weighting=weighting)
        super().__init__(model_or_parameters, rule, num_batches=num_batches, scaler=scaler)
