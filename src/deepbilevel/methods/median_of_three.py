"""The median of three means, parameter by parameter (Chatterjee & Zielinski 2020, "coherent gradients").

    gradient = median(mean of part 1, mean of part 2, mean of part 3)

The mini-batches of a group are dealt out in turn, 1 2 3 1 2 3 and so on. What one part
alone says, however loudly, does not carry the median beyond the other two. Three sums and one g_i are held, whatever
k is.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from deepbilevel.distributed import ProcessGroupChoice
from deepbilevel.gradients import Gradients, add_gradients
from deepbilevel.group_checks import check_num_batches
from deepbilevel.group_report import GroupReport
from deepbilevel.group_step import GroupStep
from deepbilevel.methods.finite_batches import FiniteBatches
from deepbilevel.parameters import Parameters
from deepbilevel.sharing import Spread

_PARTS = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class MedianReport(GroupReport):
    """What one step did. Tensors stay on the device.

    Attributes:
        weights: what each mini-batch counted in the three means, one third for each of them; 0 where its gradient was
            not finite, and all 0 where the step is.
        norms: length of each of the k gradients.
    """

    norms: Tensor


class MedianOfThree(GroupStep[MedianReport]):
    """Fill ``.grad`` with the coordinate-wise median of the means of three parts of a group.

    Mini-batches that are not finite are left out of their part; if a part is empty, nothing is learned.

    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> rule = MedianOfThree(model, num_batches=3)
    >>> for x in torch.tensor([[[1.0, 0.0]], [[2.0, 1.0]], [[90.0, -1.0]]]):
    ...     rule.backward(model(x).sum())
    >>> report = rule.fill()
    >>> model.weight.grad
    tensor([[2., 0.]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``.
        num_batches: k, the number of mini-batches in a group, at least three.
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
        scaler: GradScaler | None = None,
        process_group: ProcessGroupChoice = None,
        spread: Spread | None = None,
    ) -> None:
        super().__init__(model_or_parameters, scaler=scaler, process_group=process_group, spread=spread)
        self._choose(num_batches=num_batches)

    def _choose(self, **settings: Any) -> None:
        check_num_batches(settings["num_batches"])
        self._share.check(settings["num_batches"])
        if settings["num_batches"] < _PARTS:
            raise ValueError(
                f"num_batches must be at least {_PARTS} for a median of three, got {settings['num_batches']}"
            )
        self.num_batches: int = int(settings["num_batches"])
        self._forget()

    def _settings(self) -> dict[str, Any]:
        return {"num_batches": self.num_batches}

    def _forget(self) -> None:
        self._batches = FiniteBatches(self._blocks_of([0] * len(self._parameters)))
        self._parts: list[Gradients] = [{} for _ in range(_PARTS)]

    def _add(self, gradients: Gradients) -> None:
        gradients, _ = self._batches.take(gradients)
        add_gradients(self._parts[self._place % _PARTS], gradients)

    def _combine(self, losses: Tensor) -> tuple[Gradients, Tensor, MedianReport]:
        losses, norms = self._of_group(losses, self._batches.norms)
        self._over_group(*self._parts)
        finite = torch.isfinite(norms)
        counts = torch.stack([finite[part::_PARTS].sum() for part in range(_PARTS)]).to(norms.dtype)
        sound = (counts > 0).all()
        learned = torch.zeros_like(sound)
        result: Gradients = {}
        for position in dict.fromkeys(position for part in self._parts for position in part):
            present = [part[position] for part in self._parts if position in part]
            low, middle, high = (part.pop(position, torch.zeros_like(present[0])) for part in self._parts)
            for mean, count in zip((low, middle, high), counts, strict=True):
                mean.div_(count.clamp(min=1))
            smaller, larger = torch.minimum(low, middle), torch.maximum(low, middle)
            result[position] = torch.maximum(smaller, torch.minimum(larger, high)).mul_(sound)
            learned = learned | result[position].any()
        (learned,) = self._share.over_shards([learned.to(counts.dtype).reshape(1)])
        places = torch.arange(self.num_batches, device=counts.device) % _PARTS
        weights = finite * (learned > 0) / (_PARTS * counts.clamp(min=1)[places])
        return result, finite, MedianReport(weights=weights, norms=norms, losses=losses, finite=finite)
