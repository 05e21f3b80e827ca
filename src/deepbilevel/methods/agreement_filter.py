"""Gradient agreement filtering: a mini-batch joins the average if it points the same way (Chaubard et al. 2024).

    v = g_1;   for i = 2 .. k:   if 1 - cos(v, g_i) <= max_cosine_distance:   v = (v + g_i) / 2;   gradient = v

The first mini-batch begins, later ones count more, and if none agrees nothing is learned: so does the authors' package,
``gradient-agreement-filtering`` 0.1.3. It is not called from here because it owns the optimizer's step and the loading
of images, copies every gradient, and prints or logs as it goes; a test compares the two. Two things differ: a zero
gradient is filled where the package skips the optimizer's step, and a mini-batch that is not finite is left out where
the package takes it in. The average and one g_i are held, whatever k is.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import Gradients, blend_gradients, scale_gradients
from deepbilevel.group_checks import check_num_batches
from deepbilevel.group_report import GroupReport
from deepbilevel.group_step import GroupStep
from deepbilevel.methods.finite_batches import FiniteBatches
from deepbilevel.methods.settings import check_distance
from deepbilevel.parameters import Parameters
from deepbilevel.rule import cosines
from deepbilevel.sharing import Spread


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterReport(GroupReport):
    """What one step did. Tensors stay on the device.

    Attributes:
        weights: what each of the k mini-batches counts in the average; all 0 if the step is zero.
        agreement: cosine of each mini-batch but the first with the average before it; 0 if there was none.
        norms: length of each of the k gradients.
    """

    agreement: Tensor
    norms: Tensor


class AgreementFilter(GroupStep[FilterReport]):
    """Fill ``.grad`` with an average of those mini-batches that agree with the ones before them.

    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> rule = AgreementFilter(model, num_batches=3)
    >>> for x in torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]], [[1.0, 2.0]]]):
    ...     rule.backward(model(x).sum())
    >>> rule.fill().weights, model.weight.grad  # the second contradicts the first, the third does not
    (tensor([0.5000, 0.0000, 0.5000]), tensor([[1., 1.]]))

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group.
        max_cosine_distance: up to which ``1 - cosine`` a mini-batch agrees, in 0 .. 2; the authors recommend 0.9 to 1.
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
        max_cosine_distance: float = 0.97,
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._choose(num_batches=num_batches, max_cosine_distance=max_cosine_distance)

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        self._share.check(settings["num_batches"], refused="AgreementFilter")
        self.max_cosine_distance: float = check_distance(settings["max_cosine_distance"])
        self.num_batches: int = int(settings["num_batches"])
        self._model = self._blocks_of([0] * len(self._parameters))
        self._forget()

    def _settings(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches, "max_cosine_distance": self.max_cosine_distance}

    def _forget(self) -> None:
        self._batches = FiniteBatches(self._blocks_of([0] * len(self._parameters)))
        self._average: Gradients = {}
        self._started: Tensor | None = None  # whether a finite mini-batch is in the average
        self._agreed: Tensor | None = None  # whether a second one is
        self._weights: list[Tensor] = []
        self._agreement: list[Tensor] = []

    def _add(self, gradients: Gradients) -> None:
        gradients, finite = self._batches.take(gradients)
        if self._started is None or self._agreed is None:
            self._average, self._started, self._agreed = gradients, finite, torch.zeros_like(finite)
            self._weights.append(finite.to(self._batches.count.dtype))
            return
        cosine = self._cosine(gradients)
        agrees = self._started & finite & (1 - cosine <= self.max_cosine_distance)
        kept = torch.where(agrees, 0.5, (self._started | ~finite).to(cosine.dtype)).to(cosine.dtype)
        self._average = blend_gradients(self._average, gradients, kept)
        self._started, self._agreed = self._started | finite, self._agreed | agrees
        self._weights = [*(weight * kept for weight in self._weights), 1 - kept]
        self._agreement.append(cosine)

    def _cosine(self, gradients: Gradients) -> Tensor:
        own, average = (self._model.sq_norms(each).sqrt() for each in (gradients, self._average))
        return cosines(self._model.dots(self._average, gradients), own, average).squeeze()

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, FilterReport]:
        assert self._agreed is not None  # a full group has at least two mini-batches
        finite, weights = self._batches.finite, torch.stack(self._weights)
        # Opposite gradients that a large distance lets pass may cancel out: nothing is learned then, either.
        learned = self._agreed & (self._model.sq_norms(self._average) > 0).squeeze()
        scale_gradients(self._average, learned.to(weights.dtype))
        report = FilterReport(
            weights=weights * learned,
            agreement=torch.stack(self._agreement),
            norms=self._batches.norms,
            losses=losses,
            finite=finite,
        )
        return self._average, finite, report
