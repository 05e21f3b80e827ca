"""Deep bilevel learning as a training step: the first mini-batch of a group validates, the others train.

Two switches leave the paper: every mini-batch may be validated by all others, and the validation gradient may be
averaged over groups.

What happens to each gradient stands here; when it arrives and where the result goes is ``group_step.py``, the
equations are ``rule.py``, the arithmetic on parameters is ``gradients.py``.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import AnyGradients, Gradients, HeldGradients, WeightedGradientSum, multiply_out
from deepbilevel.group_checks import check_num_batches
from deepbilevel.group_report import GroupReport
from deepbilevel.group_step import GroupStep
from deepbilevel.parameters import Parameters
from deepbilevel.rule import (
    Validation,
    Weighting,
    bilevel_weights,
    check_choices,
    check_rule,
    compare_with_the_others,
    cosines,
    exact_weights,
    l1_divisor,
    reweigh,
)
from deepbilevel.sharing import Spread
from deepbilevel.validation_average import ValidationAverage

Solver = Literal["diagonal", "exact"]
_HOLDING = ("exact", "k-fold")  # choices that need all k gradients at once


@dataclass(frozen=True, eq=False, kw_only=True)
class StepReport(GroupReport):
    """What one bilevel step did. Tensors stay on the device, so a report nobody reads costs no waiting.

    With ``per_layer=True`` every entry of a mini-batch becomes a row with one column per layer. With
    ``validation="k-fold"`` all k mini-batches train, and what has ``k - 1`` entries here has k.

    Attributes:
        weights: the ``k - 1`` weights that were applied to the training mini-batches.
        raw_weights: the same before normalisation, straight from the rule or from the control in its place.
        agreement: cosine between each training gradient and its validation gradient, ``k - 1``.
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
            ``"cosine"`` is ``<g_v, g_i> / (|g_v| |g_i|)``, without ``mu`` and ``lam``.
        validation: what g_v is. ``"first"`` is the paper's, the gradient of the first mini-batch. ``"momentum"``
            averages it over groups, the current one included, and holds one model-sized buffer more, between groups
            too. ``"k-fold"`` is for each mini-batch the mean of the others: all k train, and all k gradients are held.
        validation_momentum: of ``"momentum"``: ``g_v <- m g_v + (1 - m) g_first``, from 0 to less than 1.
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
        mu: float = 0.01,
        lam: float = 1.0,
        normalize: bool = True,
        per_layer: bool = False,
        solver: Solver = "diagonal",
        weighting: Weighting = "agreement",
        validation: Validation = "first",
        validation_momentum: float = 0.9,
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._choose(
            num_batches=num_batches,
            mu=mu,
            lam=lam,
            normalize=normalize,
            per_layer=per_layer,
            solver=solver,
            weighting=weighting,
            validation=validation,
            validation_momentum=validation_momentum,
            validation_average=None,
        )

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        check_rule(lam=settings["lam"], mu=settings["mu"])
        if settings["solver"] not in get_args(Solver):
            solvers = " or ".join(map(repr, get_args(Solver)))
            raise ValueError(f"solver must be {solvers}, got {settings['solver']!r}")
        check_choices(
            weighting=settings["weighting"],
            validation=settings["validation"],
            validation_momentum=settings["validation_momentum"],
            solver=settings["solver"],
        )
        held = [f"{name}={settings[name]!r}" for name in ("solver", "validation") if settings[name] in _HOLDING]
        self._share.check(settings["num_batches"], refused=held[0] if held else None)
        if settings["weighting"] == "random":
            self._share.check_shards("weighting='random' draws numbers in each process")
        if settings["per_layer"]:
            self._check_owners("per_layer=True")
        average = ValidationAverage.from_state(
            settings["validation_average"], self._share.own_parts(dict(enumerate(self._parameters)))
        )
        self.num_batches: int = int(settings["num_batches"])  # numpy's do not survive a JSON checkpoint
        self.mu: float = float(settings["mu"])
        self.lam: float = float(settings["lam"])
        self.normalize: bool = settings["normalize"]
        self.per_layer: bool = settings["per_layer"]
        self.solver: Solver = settings["solver"]
        self.weighting: Weighting = settings["weighting"]
        self.validation: Validation = settings["validation"]
        self.validation_momentum: float = float(settings["validation_momentum"])
        self._average = average
        whole_model = [0] * len(self._parameters)
        self._blocks = self._blocks_of(self._owners if self.per_layer and self._owners else whole_model)
        self._forget()

    def _settings(self) -> dict[str, Any]:
        names = ("num_batches", "mu", "lam", "normalize", "per_layer", "solver", "weighting")
        settings = {name: getattr(self, name) for name in (*names, "validation", "validation_momentum")}
        return settings | {"validation_average": self._average.state_dict()}

    def _forget(self) -> None:
        self._validation: tuple[AnyGradients, Tensor, Tensor] | None = None  # the gradient, its norms, whether finite
        self._num_drawn = 0  # random weights of others' mini-batches and the own ones
        self._sum = WeightedGradientSum(self._blocks)
        self._held = HeldGradients()  # by the exact solver and by k-fold validation only
        self._raw_weights: list[Tensor] = []
        self._dots: list[Tensor] = []
        self._sq_norms: list[Tensor] = []
        self._finite: list[Tensor] = []

    def _get_ready(self) -> None:
        if self._place > 0 and self._validation is None:
            self._share.expect_first()

    def _add_any(self, gradients: AnyGradients) -> None:
        # Inner products and sums do not need a gradient multiplied out; an average over groups does.
        self._add(gradients if self.validation != "momentum" else multiply_out(gradients))

    def _add(self, gradients: AnyGradients) -> None:
        if self._validation is None and self._place > 0 and self.validation != "k-fold":
            received = self._share.receive_first()
            self._keep_validation(received, self._blocks.sq_norms(received))
        compared = self._held.gradients if self._validation is None else [self._validation[0], *self._held.gradients]
        sq_norms, dots = self._blocks.measure(gradients, compared)
        self._sq_norms.append(sq_norms)
        # One bad layer discards the mini-batch as a whole: its other layers came from the same pass.
        self._finite.append(torch.isfinite(sq_norms).all())
        if self.validation == "k-fold":
            self._held.add(gradients, dots, sq_norms)
        elif self._validation is None:
            # An average overwrites what is being sent.
            gradients = self._share.send_first(gradients, wait=self.validation == "momentum")
            self._keep_validation(gradients, sq_norms)
        else:
            self._compare(gradients, sq_norms, dots, *self._validation[1:])

    def _keep_validation(self, gradients: AnyGradients, sq_norms: Tensor) -> None:
        finite = torch.isfinite(sq_norms).all()
        if self.validation == "momentum":
            momentum = sq_norms.new_full((), self.validation_momentum)
            gradients = self._average.with_gradient(multiply_out(gradients), finite, momentum)
            sq_norms = self._blocks.sq_norms(gradients)
        self._validation = gradients, sq_norms.sqrt(), finite

    def _compare(
        self, gradients: AnyGradients, sq_norms: Tensor, products: list[Tensor], validation_norms: Tensor, sound: Tensor
    ) -> None:
        """Weigh gradients by ``products`` with the validation gradient and, from the second on, with those held."""
        dots = torch.where(sound & self._finite[-1], products[0], torch.nan)
        self._dots.append(dots)
        if self.solver == "exact":
            self._held.add(gradients, products[1:], sq_norms)
        else:
            self._draw_for_others(self._place, dots)
            weights = self._weigh(dots, sq_norms, validation_norms)
            self._raw_weights.append(weights)
            self._sum.add(weights, gradients)

    def _draw_for_others(self, place: int, dots: Tensor) -> None:
        """Draw the random weights of other processes' mini-batches: seeded alike, all draw as one process would."""
        if self.weighting == "random" and not self._share.is_whole:
            for _ in range(self._num_drawn + 1, place):
                torch.randn_like(dots)
            self._num_drawn = place

    def _weigh(self, dots: Tensor, sq_norms: Tensor, validation_norms: Tensor) -> Tensor:
        if self.weighting == "cosine":
            return cosines(dots, sq_norms.sqrt(), validation_norms)
        return reweigh(bilevel_weights(dots, sq_norms, lam=self.lam, mu=self.mu), dots, self.weighting)

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, StepReport]:
        finite, sq_norms = torch.stack(self._finite), torch.stack(self._sq_norms)  # [k], [k, blocks]
        norms = sq_norms.sqrt()
        if self._validation is None:
            raw_weights, agreement = self._validate_by_the_others(finite, sq_norms)
        elif self._share.is_whole:
            raw_weights, agreement = self._validate_by_one(norms[1:], *self._validation)
        else:
            # The validation mini-batch has a row too, wherever it ran.
            num_rows = len(norms)
            own = norms[num_rows - len(self._dots) :]
            rows = [
                torch.cat([each.new_zeros(num_rows - len(each), *each.shape[1:]), each])
                for each in self._validate_by_one(own, *self._validation)
            ]
            losses, finite, norms, raw_weights, agreement = self._of_group(losses, finite, norms, *rows)
            raw_weights, agreement = raw_weights[1:], agreement[1:]
            self._draw_for_others(self.num_batches, norms[0])
            self._over_group(self._sum.gradients)
        divisors = l1_divisor(raw_weights)
        if not self.normalize:
            divisors = torch.where(torch.isfinite(divisors), 1.0, divisors)
        columns = {
            "weights": torch.nan_to_num(raw_weights / divisors, nan=0.0),
            "raw_weights": raw_weights,
            "agreement": agreement,
            "norms": norms,
        }
        if not self.per_layer:
            columns = {name: column.squeeze(1) for name, column in columns.items()}
        return self._sum.divided_by(divisors), finite, StepReport(**columns, losses=losses, finite=finite)

    def _validate_by_one(
        self, norms: Tensor, validation: AnyGradients, validation_norms: Tensor, sound: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Complete the sum; return weights and agreement of the ``k - 1`` training mini-batches."""
        dots = torch.stack(self._dots) if self._dots else norms  # [k - 1, blocks]
        if self.solver == "exact":
            raw_weights = exact_weights(self._held.gram(), dots.T, lam=self.lam, mu=self.mu).T
            if self.weighting != "cosine":  # which is refused with this solver
                raw_weights = reweigh(raw_weights, dots, self.weighting)
            self._held.add_to(self._sum, raw_weights)
        else:
            raw_weights = torch.stack(self._raw_weights) if self._dots else norms
        if self.validation == "momentum":
            self._average.keep(multiply_out(validation), sound)
        return raw_weights, cosines(dots, norms, validation_norms)

    def _validate_by_the_others(self, finite: Tensor, sq_norms: Tensor) -> tuple[Tensor, Tensor]:
        """Make the sum; return weights and agreement of all k mini-batches."""
        dots, validation_norms = (each.T for each in compare_with_the_others(self._held.gram(), finite))  # [k, blocks]
        raw_weights = self._weigh(dots, sq_norms, validation_norms)
        self._held.add_to(self._sum, raw_weights)
        return raw_weights, cosines(dots, sq_norms.sqrt(), validation_norms)
