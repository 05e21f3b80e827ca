"""Steps weighted by the gradient's signal-to-noise ratio, parameter by parameter (Liu et al. 2020, Jiang et al. 2023).

    r = mean_i(g_i)^2 / var_i(g_i),   f = clamp(r / (mean of r over the tensor), floor, 1),   gradient = f mean_i(g_i)

Liu et al. define r (GSNR) over single images; Jiang et al. ("VRGD") take it over parts of a batch and step like this.
Whether the variance is divided by k or k - 1 cancels out. Where mini-batches are all equal, r is infinite: f is 1
there, and the mean is over the others. The mean, the sum of squared deviations and one g_i are held, whatever k is.
"""

from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import Gradients
from deepbilevel.group_checks import check_num_batches
from deepbilevel.group_step import GroupStep
from deepbilevel.methods.finite_batches import ElementwiseReport, FiniteBatches, apply_factors
from deepbilevel.methods.settings import check_floor
from deepbilevel.parameters import Parameters
from deepbilevel.sharing import Spread


class GsnrWeighted(GroupStep[ElementwiseReport]):
    """Fill ``.grad`` with the mean gradient, made smaller where mini-batches differ more than elsewhere.

    Mini-batches that are not finite are left out; if fewer than two remain, nothing is learned.

    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> rule = GsnrWeighted(model, num_batches=2)
    >>> for x in torch.tensor([[[1.0, 7.0]], [[3.0, -3.0]]]):
    ...     rule.backward(model(x).sum())
    >>> report = rule.fill()
    >>> model.weight.grad  # ratios 4 / 1 and 4 / 25: 1.92 and 0.08 times their mean, confined to 1 and 0.1
    tensor([[2.0000, 0.2000]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group.
        floor: the smallest factor; 1 is plain averaging.
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
        floor: float = 0.1,
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._choose(num_batches=num_batches, floor=floor)

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        self._share.check(settings["num_batches"])
        self._share.check_shards("GsnrWeighted takes means over whole parameters")
        self.floor: float = check_floor(settings["floor"])
        self.num_batches: int = int(settings["num_batches"])
        self._forget()

    def _settings(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches, "floor": self.floor}

    def _forget(self) -> None:
        self._batches = FiniteBatches(self._blocks_of([0] * len(self._parameters)))
        self._mean: Gradients = {}
        self._deviations: Gradients = {}

    def _add(self, gradients: Gradients) -> None:
        """Go on with mean and squared deviations as Welford does: squares of sums would lose a small variance."""
        gradients, finite = self._batches.take(gradients)
        count = self._batches.count
        share = torch.where(finite, 1 / count, 0.0)  # of this mini-batch in the mean
        growth = torch.where(finite, 1 - 1 / count, 0.0)
        for position, gradient in gradients.items():
            if position not in self._mean:  # no mini-batch before had any: all of them were zero
                self._mean[position], self._deviations[position] = (torch.zeros_like(gradient) for _ in range(2))
        for position, mean in self._mean.items():
            change = gradients[position].sub_(mean) if position in gradients else -mean
            mean.addcmul_(change, share.to(mean))
            self._deviations[position].addcmul_(change.square_(), growth.to(mean))

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, ElementwiseReport]:
        losses = self._join(losses)
        comparable = self._batches.count > 1
        for position, mean in self._mean.items():
            ratios = mean.square().div_(self._deviations[position])
            self._deviations[position] = self._factors(ratios).mul_(comparable)
        shared = self._mean_over_parameters(apply_factors(self._mean, self._deviations), self._mean)
        return self._mean, self._batches.finite, self._batches.report(losses, shared)

    def _join(self, losses: Tensor) -> Tensor:
        """Go on with the whole group where this process has seen a share of it; return all losses.

        Deviations from the own mean become those from the mean of all, ``sum (g - m)^2 = sum (g - m_own)^2 + n_own
        (m_own - m)^2``: with sums of squares a small variance would be lost here too.
        """
        count = self._batches.count
        losses, norms = self._of_group(losses, self._batches.norms)
        if self._share.is_whole:
            return losses
        self._batches.complete(norms)
        own = {position: mean.clone() for position, mean in self._mean.items()}
        for mean in self._mean.values():
            mean.mul_(count)
        self._over_group(self._mean)
        for position, mean in self._mean.items():
            mean.div_(self._batches.count.clamp(min=1))
            change = own[position].sub_(mean) if position in own else -mean
            deviations = self._deviations.setdefault(position, torch.zeros_like(mean))
            deviations.addcmul_(change.square_(), count.to(mean))
        self._over_group(self._deviations)
        return losses

    def _factors(self, ratios: Tensor) -> Tensor:
        ratios.nan_to_num_(nan=0.0, posinf=torch.inf)  # 0 / 0: a gradient of zero has no signal
        certain = torch.isinf(ratios)
        average = torch.where(certain, 0.0, ratios).sum() / (~certain).sum()
        factors = torch.where(certain, 1.0, ratios.div_(average))
        return factors.nan_to_num_(nan=0.0).clamp_(self.floor, 1)  # 0 / 0: no signal in the whole tensor
