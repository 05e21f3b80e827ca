"""What all steps of several processes have in common: they start from the same settings and numbers.

Each way of sharing is a file of its own: ``spread_step.py`` (batches), ``averaged_step.py`` (groups) and
``sharded_step.py`` (images). They override the few places where :class:`~deepbilevel.GroupStep` would take in, finish
or put gradients alone. The rule and its accumulator are the same as in one process.
"""

import zlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from deepbilevel.contract import Blank, ReportT
from deepbilevel.distributed.ranks import Ranks, quiet_wrappers
from deepbilevel.distributed.running_statistics import RunningStatistics
from deepbilevel.distributed.spreads import Spread, check_samplers
from deepbilevel.gradients import AnyGradients, Gradients
from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep


class SharedStep(GroupStep[ReportT]):
    """Base of all steps that talk to other processes.

    Args:
        step: says what is trained and how; it is not used any more.
        ranks: the processes.
        spread: what they share.
    """

    is_shared = True

    def __init__(self, step: GroupStep[ReportT], ranks: Ranks, spread: Spread) -> None:
        self._ranks = ranks
        self._spread: Spread = spread
        self._checked = False
        super().__init__(
            step.parameters if step.model is None else step.model,
            step.rule,
            num_batches=step.num_batches,
            optimizer=step.optimizer,
            scaler=step.scaler,
        )

    def deal(self, groups: MatchedGroups) -> MatchedGroups:
        """Return the sampler of this process's part, by the spread of the step."""
        from deepbilevel.distributed.sharing import share  # which imports this module

        return share(groups, self._spread, process_group=self._ranks.process_group)

    def _gradients_of(self, loss: Tensor) -> Gradients:
        self._before_backward()
        return self._autograd.gradients_of(loss)

    def _before_backward(self) -> None:
        if not self._checked:
            self._check_equality()
            check_samplers(self._ranks.members, self._spread)
            self._checked = True

    def _check_equality(self) -> None:
        """Refuse, once, to start from different settings or numbers: equal steps would keep them different for ever."""
        shapes = [(tuple(each.shape), str(each.dtype), each.requires_grad) for each in self.parameters]
        described = repr((self._settings(), self._spread, shapes, *self._described()))
        own = [zlib.crc32(described.encode()), self._checksum()]
        for rank, others in enumerate(self._ranks.numbers_of_all(own, self.parameters[0].device)):
            if others[0] != own[0]:
                raise ValueError(
                    f"process {rank} has other settings or other trainable parameters than process {self._ranks.rank}; "
                    "build model and rule alike in all processes"
                )
            if others[1] != own[1]:
                raise ValueError(
                    f"the parameters or BatchNorm statistics of process {rank} differ from those of process "
                    f"{self._ranks.rank} before the first step; set the same seed before the model is built, load the "
                    "same weights, or wrap the model in DistributedDataParallel, which sends those of the first "
                    "process to all"
                )

    def _described(self) -> tuple[object, ...]:
        return ()

    def _checksum(self) -> int:
        """Return a checksum of all numbers that must be equal."""
        return 0


class SameModelStep(SharedStep[ReportT]):
    """Base of steps whose processes hold the same model: they add up, or average, what has its size.

    Args:
        step: says what is trained and how.
        ranks: the processes.
        spread: what they share.
    """

    def __init__(self, step: GroupStep[ReportT], ranks: Ranks, spread: Spread) -> None:
        if step.model is None:
            raise TypeError(
                "a step of several processes needs the model itself as model_or_parameters, to keep its BatchNorm "
                "statistics equal; pass it, or share(step, 'nothing')"
            )
        self._statistics = RunningStatistics(step.model)
        super().__init__(step, ranks, spread)
        self._orders = [_memory_order(parameter) for parameter in self.parameters]
        quiet_wrappers(self, step.model)

    def collect(self, gradients: AnyGradients, loss: Tensor) -> None:
        """Take in the next mini-batch, and what its forward pass did to BatchNorm layers."""
        if self._statistics.num_layers:
            self._statistics.collect()
        super().collect(gradients, loss)

    def reset(self) -> None:
        """Drop a half-collected group, and what it did to BatchNorm layers."""
        self._statistics.go_back()
        super().reset()

    def _described(self) -> tuple[object, ...]:
        return (self._orders,)

    def _checksum(self) -> int:
        checksum = 0
        for each in (*self.parameters, self._statistics.at_start):
            content = each.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            checksum = zlib.crc32(content.numpy().tobytes(), checksum)
        return checksum

    def _reduce(
        self,
        reduction: Callable[[Sequence[Tensor]], list[Tensor]],
        sums: Sequence[tuple[Gradients, Blank]],
        extras: Sequence[Tensor],
    ) -> list[Tensor]:
        """Reduce everything at once, ``sums`` in place; return the ``extras``.

        A parameter that has a gradient in any process then has one in all.
        """
        positions = self._trainable()
        touched = [any(position in each for each, _ in sums) for position in positions]
        vectors: list[Tensor] = []
        shapes: list[torch.Size] = []
        for each, blank in sums:
            for p in positions:
                own = each.pop(p, None)
                own = blank(self.parameters[p].detach()) if own is None else own
                vectors.append(self._flat(p, own))
                shapes.append(own.shape)
        flags = torch.tensor(touched, device=vectors[0].device, dtype=vectors[0].dtype)
        totals = reduction([*vectors, flags, *extras])
        flags, *others = totals[len(vectors) :]
        # Who has touched all of them need not wait for the device to learn that others have.
        present = touched if all(touched) else (flags > 0).tolist()
        for number, (each, _) in enumerate(sums):
            for i, (p, is_there) in enumerate(zip(positions, present, strict=True), start=number * len(positions)):
                if is_there:
                    each[p] = self._shaped(p, totals[i], shapes[i])
        return others

    def _trainable(self) -> list[int]:
        return [position for position, parameter in enumerate(self.parameters) if parameter.requires_grad]

    def _flat(self, position: int, tensor: Tensor) -> Tensor:
        """Return the numbers in the order of the parameter's memory, which is the same in all processes."""
        if tensor.dim() == 0:  # one number for the whole parameter
            return tensor.reshape(-1)
        return tensor.permute(self._orders[position]).reshape(-1)

    def _shaped(self, position: int, flat: Tensor, shape: torch.Size) -> Tensor:
        if not shape:
            return flat.reshape(())
        order = self._orders[position]
        return flat.view([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(len(order))])


def _memory_order(tensor: Tensor) -> list[int]:
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
