"""The paper's rule: the first mini-batch validates, the others are weighted by their agreement with it.

    w_i = <g_v, g_i> / (|g_i|^2 / lam + mu),   W = sum_i |w_i|,   gradient = sum_i (w_i / W) g_i

Each ``w_i`` needs only g_v and g_i, and W is the same for every i, so the sum can be divided by it at the end. Three
buffers of the model's size are enough for any k: g_v, the current g_i and the running sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.contract import Accumulator, Blank, Memory, Outcome
from deepbilevel.gradients import Gradients, Layout, Parameters, WeightedGradientSum, wide_zeros
from deepbilevel.rule import bilevel_weights, cosines
from deepbilevel.rules.bilevel_settings import BilevelReport, ControlledSettings, Weighting
from deepbilevel.step import GroupStep


@dataclass(frozen=True)
class BilevelRule(ControlledSettings):
    """The settings of the paper's rule, which :class:`Bilevel` explains.

    They are ``mu``, ``lam``, ``normalize``, ``per_layer`` and ``weighting``.
    """

    kind: ClassVar[str] = "bilevel"
    description: ClassVar[str] = "the paper's rule: weights by agreement with validation"
    validates: ClassVar[bool] = True  # the first mini-batch is not trained on
    compares_with_first: ClassVar[bool] = True  # the others need its gradient to be weighted

    def start(self, layout: Layout, num_batches: int, memory: Memory) -> "BilevelAccumulator":
        """Return the accumulator of a new group."""
        return BilevelAccumulator(self, layout, num_batches)


class BilevelAccumulator(Accumulator[BilevelReport]):
    """Streams over a group: keeps the validation gradient and the weighted sum of the others.

    Statistics and weights have one entry per block: the whole model, or each layer.

    Args:
        rule: the settings.
        layout: which parameters belong to which layer.
        num_batches: k.
    """

    def __init__(self, rule: BilevelRule, layout: Layout, num_batches: int) -> None:
        super().__init__()
        self._rule = rule
        self._blocks = rule.blocks_of(layout)
        self._sum = WeightedGradientSum(self._blocks)
        self._control = rule.control(num_batches)

    def add(self, gradients: Gradients, place: int) -> None:
        """Keep the first mini-batch's gradient; weight every other one and add it to the sum.

        Args:
            gradients: of one mini-batch.
            place: of the mini-batch in the group, counted from zero.
        """
        if place == 0:
            sq_norms = self.validate(gradients)
            # Validation has no inner product and no weight. Fillers keep all rows alike; `finish` reads the norm only.
            self.rows[0] = sq_norms, sq_norms, sq_norms
            return
        sq_norms, (dots,) = self._blocks.measure(gradients, [self._validation])
        # One bad layer discards the mini-batch as a whole: its other layers came from the same pass.
        finite = torch.isfinite(sq_norms).all() & self._validation_is_finite
        dots = torch.where(finite, dots, torch.nan)  # which becomes weight zero, and cosine zero in the report
        weights = bilevel_weights(dots, sq_norms, lam=self._rule.lam, mu=self._rule.mu)
        if self._control is not None:  # an experiment asks for other weights; NaN is weight zero there, too
            weights = self._control(weights, dots, sq_norms, self._validation_norms, place)
        self._sum.add(weights, gradients)  # a gradient of weight zero is left out, NaN and all
        self.rows[place] = sq_norms, dots, weights

    def validate(self, gradients: Gradients) -> Tensor:
        """Make these the validation gradient g_v; return its squared norms."""
        sq_norms = self._blocks.sq_norms(gradients)
        self._validation = gradients
        self._validation_norms = sq_norms.sqrt()
        self._validation_is_finite = torch.isfinite(sq_norms).all()
        return sq_norms

    def finish(self, losses: Tensor) -> Outcome[BilevelReport]:
        """Divide the sum by W, the L1 norm of the weights."""
        sq_norms, dots, weights = self.columns()
        norms, dots, weights = sq_norms.sqrt(), dots[1:], weights[1:]
        divisors = self._rule.divisors(weights)  # W by `l1_divisor`; 1 with normalize=False
        agreement = cosines(dots, norms[1:], self._validation_norms)
        report = self._rule.report(weights, divisors, agreement, norms, losses)
        return Outcome(self._sum.divided_by(divisors), report)

    def sums(self) -> Iterator[list[tuple[Gradients, Blank]]]:
        """Yield the weighted sum; where processes share a group, each has a part of it (``distributed/``)."""
        yield [(self._sum.gradients, wide_zeros)]


class Bilevel(GroupStep[BilevelReport]):
    """Fill ``.grad`` with training gradients weighted by their agreement with a validation gradient.

    ``.grad = sum_i (w_i / W) g_i`` with ``w_i = <g_v, g_i> / (|g_i|^2 / lam + mu)`` and ``W = sum_i |w_i|``, where
    g_v is the gradient of the group's first mini-batch. Only g_v, one g_i and the sum are held, whatever k is.

    A training mini-batch whose gradient is not finite is left out. If that happens to validation, or if all weights
    are zero, ``.grad`` is zero, and the optimizer's step is momentum and weight decay alone.

    >>> from deepbilevel import Bilevel
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> bilevel = Bilevel(model, num_batches=3)
    >>> for x in torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]):
    ...     bilevel.backward(model(x).sum())
    >>> bilevel.fill().weights  # normalised: the first training mini-batch agrees, the second is orthogonal
    tensor([1., 0.])
    >>> model.weight.grad
    tensor([[1., 0.]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group; one validates, k - 1 are trained on.
        mu: keeps small gradients from getting large weights (the paper's mu-hat).
        lam: how far the linear approximation of the validation loss is trusted (lambda-hat). Normalised weights depend
            on ``lam * mu`` alone: tune ``mu``.
        normalize: divide the weights by their L1 norm, so that the usual learning rate stays right.
        per_layer: weight and normalise the gradients of each layer, a module with parameters of its own, separately; a
            mini-batch that is not finite in one layer is still left out of all.
        weighting: ``"agreement"`` is the rule; the others are controls to compare it with (``rules/controls.py``).
        scaler: the ``torch.amp.GradScaler`` of a float16 loop; weights are those of unscaled gradients.
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
