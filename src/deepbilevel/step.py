"""Deep bilevel learning as a training step: the first mini-batch of a group validates, the others train.

What happens to each gradient stands here; when it arrives and where the result goes is ``group_step.py``, the
equations are ``rule.py``, the arithmetic on parameters is ``gradients.py``.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.gradients import Blocks, Gradients, WeightedGradientSum
from deepbilevel.group_report import GroupReport
from deepbilevel.group_step import GroupStep, check_num_batches
from deepbilevel.parameters import Parameters
from deepbilevel.rule import (
    Weighting,
    bilevel_weights,
    check_rule,
    check_weighting,
    exact_weights,
    l1_divisor,
    reweigh,
)

Solver = Literal["diagonal", "exact"]


@dataclass(frozen=True, eq=False, kw_only=True)
class StepReport(GroupReport):
    """What one bilevel step did. Tensors stay on the device, so a report nobody reads costs no waiting.

    With ``per_layer=True`` every entry of a mini-batch becomes a row with one column per layer.

    Attributes:
        weights: the ``k - 1`` weights that were applied to the training mini-batches.
        raw_weights: the same before normalisation, straight from the rule or from the control in its place.
        agreement: cosine between each training gradient and the validation gradient, ``k - 1``.
        norms: length of each of the k gradients, validation first.
        losses: the k losses, validation first.
        finite: for each of the k mini-batches whether its gradient was finite.
    """

    raw_weights: Tensor
    agreement: Tensor
    norms: Tensor


class Bilevel(GroupStep[StepReport]):
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
        mu: keeps small gradients from getting large weights (the paper's mu-hat).
        lam: trust in the validation loss's linear approximation (lambda-hat).
        normalize: divide the weights by their L1 norm, so that an existing learning rate stays right.
        per_layer: weigh each module's gradients on their own, and normalise them on their own; needs a module.
        solver: ``"diagonal"`` ignores what training gradients have in common and streams; ``"exact"`` solves the
            full linear system and holds all k gradients.
        weighting: ``"agreement"`` is the rule, the others are its controls: ``"absolute"`` takes ``|w_i|``,
            ``"clipped"`` ``max(w_i, 0)``, and ``"random"`` draws ``max(n, 0)``, n normal, from torch's random numbers.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop.
    """

    tolerates_bad_batches = True

    def __init__(
        self,
        model_or_parameters: Parameters,
        *,
        num_batches: int,
        mu: float = 0.01,
        lam: float = 1.0,
        normalize: bool = True,
        per_layer: bool = False,
        solver: Solver = "diagonal",
        weighting: Weighting = "agreement",
        scaler: GradScaler | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler)
        self._choose(
            num_batches=num_batches,
            mu=mu,
            lam=lam,
            normalize=normalize,
            per_layer=per_layer,
            solver=solver,
            weighting=weighting,
        )

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        check_rule(lam=settings["lam"], mu=settings["mu"])
        if settings["solver"] not in get_args(Solver):
            solvers = " or ".join(map(repr, get_args(Solver)))
            raise ValueError(f"solver must be {solvers}, got {settings['solver']!r}")
        check_weighting(settings["weighting"], settings["solver"])
        if settings["per_layer"]:
            self._check_owners("per_layer=True")
        self.num_batches: int = int(settings["num_batches"])  # numpy's do not survive a JSON checkpoint
        self.mu: float = float(settings["mu"])
        self.lam: float = float(settings["lam"])
        self.normalize: bool = settings["normalize"]
        self.per_layer: bool = settings["per_layer"]
        self.solver: Solver = settings["solver"]
        self.weighting: Weighting = settings["weighting"]
        whole_model = [0] * len(self._parameters)
        self._blocks = Blocks(self._owners if self.per_layer and self._owners else whole_model)
        self._forget()

    def _settings(self) -> dict[str, Any]:
        names = ("num_batches", "mu", "lam", "normalize", "per_layer", "solver", "weighting")
        return {name: getattr(self, name) for name in names}

    def _forget(self) -> None:
        self._validation: Gradients | None = None
        self._sum = WeightedGradientSum(self._blocks)
        self._held: list[Gradients] = []  # by the exact solver only
        self._gram: list[list[Tensor]] = []
        self._raw_weights: list[Tensor] = []
        self._dots: list[Tensor] = []
        self._sq_norms: list[Tensor] = []
        self._finite: list[Tensor] = []

    def _add(self, gradients: Gradients) -> None:
        sq_norms = self._blocks.sq_norms(gradients)
        self._sq_norms.append(sq_norms)
        # One bad layer discards the mini-batch as a whole: its other layers came from the same pass.
        self._finite.append(torch.isfinite(sq_norms).all())
        if self._validation is None:
            self._validation = gradients
            return
        dots = self._blocks.dots(self._validation, gradients)
        dots = torch.where(self._finite[0] & self._finite[-1], dots, torch.nan)
        self._dots.append(dots)
        if self.solver == "exact":
            self._gram.append([*(self._blocks.dots(held, gradients) for held in self._held), sq_norms])
            self._held.append(gradients)
        else:
            weights = bilevel_weights(dots, sq_norms, lam=self.lam, mu=self.mu)
            weights = reweigh(weights, dots, self.weighting)
            self._raw_weights.append(weights)
            self._sum.add(weights, gradients)

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, StepReport]:
        dots, sq_norms = torch.stack(self._dots), torch.stack(self._sq_norms)  # [k - 1, blocks], [k, blocks]
        if self.solver == "exact":
            raw_weights = exact_weights(self._full_gram(), dots.T, lam=self.lam, mu=self.mu).T
            raw_weights = reweigh(raw_weights, dots, self.weighting)
            for weights, gradients in zip(raw_weights, self._held, strict=True):
                self._sum.add(weights, gradients)
        else:
            raw_weights = torch.stack(self._raw_weights)
        divisors = l1_divisor(raw_weights)
        if not self.normalize:
            divisors = torch.where(torch.isfinite(divisors), 1.0, divisors)
        norms = sq_norms.sqrt()
        lengths = norms[:1] * norms[1:]
        columns = {
            "weights": torch.nan_to_num(raw_weights / divisors, nan=0.0),
            "raw_weights": raw_weights,
            "agreement": torch.where(torch.isfinite(dots) & (lengths > 0), dots / lengths, 0.0),
            "norms": norms,
        }
        if not self.per_layer:
            columns = {name: column.squeeze(1) for name, column in columns.items()}
        finite = torch.stack(self._finite)
        return self._sum.divided_by(divisors), finite, StepReport(**columns, losses=losses, finite=finite)

    def _full_gram(self) -> Tensor:
        """Mirror the lower triangle collected so far; shape ``[blocks, k - 1, k - 1]``."""
        count = len(self._gram)
        rows = [self._gram[max(i, j)][min(i, j)] for i in range(count) for j in range(count)]
        return torch.stack(rows, dim=1).reshape(-1, count, count)
