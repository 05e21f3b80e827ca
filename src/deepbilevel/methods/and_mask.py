"""The AND-mask: learn only where the mini-batches of a group agree on the sign (Parascandolo et al. 2020).

    m = |mean_i sign(g_i)| >= threshold,   gradient = m * mean_i g_i

"Learning explanations that are hard to vary", for mini-batches in the place of environments. The sum of gradients, the
sum of signs and one g_i are held, whatever k is.
"""

from typing import Any

from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import Gradients
from deepbilevel.group_checks import check_num_batches
from deepbilevel.group_step import GroupStep
from deepbilevel.methods.finite_batches import ElementwiseReport, FiniteBatches, apply_factors
from deepbilevel.methods.settings import check_threshold
from deepbilevel.parameters import Parameters
from deepbilevel.sharing import Spread


class AndMask(GroupStep[ElementwiseReport]):
    """Fill ``.grad`` with the mean gradient where signs agree, and with zero elsewhere.

    Mini-batches that are not finite are left out; if fewer than two remain, nothing is learned.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> rule = AndMask(model, num_batches=2)
    >>> for x in torch.tensor([[[1.0, 4.0]], [[3.0, -1.0]]]):
    ...     rule.backward(model(x).sum())
    >>> rule.fill().shared, model.weight.grad  # half of the parameters are agreed on
    (tensor(0.5000), tensor([[2., 0.]]))

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group.
        threshold: how much of the signs must be left when they are added up; 0 keeps everything, 1 asks all to agree,
            and 0.5 three of four.
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
        threshold: float = 0.5,
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._choose(num_batches=num_batches, threshold=threshold)

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        self._share.check(settings["num_batches"])
        self.threshold: float = check_threshold(settings["threshold"])
        self.num_batches: int = int(settings["num_batches"])
        self._forget()

    def _settings(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches, "threshold": self.threshold}

    def _forget(self) -> None:
        self._batches = FiniteBatches(self._blocks_of([0] * len(self._parameters)))
        self._sum: Gradients = {}
        self._signs: Gradients = {}

    def _add(self, gradients: Gradients) -> None:
        gradients, _ = self._batches.take(gradients)
        for position, gradient in gradients.items():
            if position in self._sum:
                self._sum[position].add_(gradient)
                self._signs[position].add_(gradient.sign_())  # the gradient's own memory, no third buffer
            else:
                self._sum[position], self._signs[position] = gradient, gradient.sign()

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, ElementwiseReport]:
        losses, norms = self._of_group(losses, self._batches.norms)
        self._batches.complete(norms)
        self._over_group(self._sum, self._signs)
        count = self._batches.count
        # 15 of 25 are 0.6, also where 0.6 * 25 is rounded to a little more than 15.
        needed = self.threshold * count * (1 - 1e-6)
        for gradient, signs in zip(self._sum.values(), self._signs.values(), strict=True):
            gradient.div_(count.clamp(min=1))
            signs.copy_((signs.abs_() >= needed) & (count > 1))
        shared = self._mean_over_parameters(apply_factors(self._sum, self._signs), self._sum)
        return self._sum, self._batches.finite, self._batches.report(losses, shared)
