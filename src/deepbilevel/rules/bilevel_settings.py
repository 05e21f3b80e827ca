"""What the paper's rule and its variants share: settings, their checks, how weights are normalised, and the report."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from deepbilevel.checks import check_flag, choose
from deepbilevel.contract import Report, Rule
from deepbilevel.gradients import Blocks, Layout
from deepbilevel.rule import check_regularisation, l1_divisor

Weighting = Literal["agreement", "absolute", "clipped", "random", "cosine"]
Control = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""``w_i``, ``<g_v, g_i>``, ``|g_i|^2``, ``|g_v|`` and i -> another ``w_i``; zero where a number is not finite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BilevelReport(Report):
    """What one bilevel step did.

    With ``per_layer=True``, weights, agreement and norms have a second dimension, one column per layer.

    >>> from deepbilevel import Bilevel
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> bilevel = Bilevel(model, num_batches=3)
    >>> for x in torch.tensor([[[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 1.0]]]):
    ...     bilevel.backward(model(x).sum())
    >>> report = bilevel.fill()
    >>> report.agreement, report.applied
    (tensor([1., 0.]), True)

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
class BilevelSettings(Rule[BilevelReport]):
    """Base of the paper's rule and its variants; :class:`~deepbilevel.Bilevel` says what the settings mean."""

    matches: ClassVar[bool] = True  # the mini-batches of a group should carry the same labels
    takes_products: ClassVar[bool] = True  # inner products and sums are all they need of a gradient

    mu: float = 0.01
    lam: float = 1.0
    normalize: bool = True
    per_layer: bool = False

    def __post_init__(self) -> None:
        check_regularisation(lam=self.lam, mu=self.mu)
        check_flag("normalize", self.normalize)
        check_flag("per_layer", self.per_layer)

    @property
    def needs_layers(self) -> str | None:
        """Per-layer weights do."""
        return "per_layer=True" if self.per_layer else None

    def blocks_of(self, layout: Layout) -> Blocks:
        """Return which parameters share a weight: those of the model, or of each layer."""
        return layout.layers if self.per_layer else layout.model

    def divisors(self, raw_weights: Tensor) -> Tensor:
        """Return ``W = sum_i |w_i|``, or one if weights are not normalised; infinity where the gradient is to be zero.

        Args:
            raw_weights: ``w_i`` of the mini-batches that train, shape ``[n, blocks]``.
        """
        divisors = l1_divisor(raw_weights)
        return divisors if self.normalize else torch.where(torch.isfinite(divisors), 1.0, divisors)

    def report(
        self, raw_weights: Tensor, divisors: Tensor, agreement: Tensor, norms: Tensor, losses: Tensor
    ) -> BilevelReport:
        """Return the report of a group.

        Args:
            raw_weights: ``w_i`` of the mini-batches that train, shape ``[n, blocks]``.
            divisors: ``W``, shape ``[blocks]``.
            agreement: cosines of those mini-batches, shape ``[n, blocks]``.
            norms: of all gradients, shape ``[k, blocks]``.
            losses: shape ``[k]``.
        """
        columns = {
            "weights": torch.nan_to_num(raw_weights / divisors, nan=0.0),
            "raw_weights": raw_weights,
            "agreement": agreement,
            "norms": norms,
        }
        if not self.per_layer:
            columns = {name: column.squeeze(1) for name, column in columns.items()}
        return BilevelReport(**columns, losses=losses, finite=torch.isfinite(norms).all(dim=1))


@dataclass(frozen=True)
class ControlledSettings(BilevelSettings):
    """Settings of a rule that has controls: ``weighting="agreement"`` is the rule itself."""

    weighting: Weighting = "agreement"

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("weighting", self.weighting, get_args(Weighting))

    @property
    def needs_whole_parameters(self) -> str | None:
        """Why sharded parameters are refused: each process would draw other random weights."""
        return "weighting='random' draws numbers in each process" if self.weighting == "random" else None

    def control(self, num_batches: int) -> Control | None:
        """Return what takes the place of the rule's weights in a group of k mini-batches, if anything does."""
        if self.weighting == "agreement":
            return None
        from deepbilevel.rules.controls import control_of  # imported here because few need it

        return control_of(self.weighting, num_batches)
