"""What processes have in common that hold the same model: they start equal, and add up what has its size.

This module knows how gradients are laid out in one long vector. Who runs where is ``distributed/``; what is added
up, and when, is the subclass's.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepbilevel.distributed import Ranks, switch_off_wrappers
from deepbilevel.gradients import Gradients
from deepbilevel.sharing.running_statistics import RunningStatistics
from deepbilevel.sharing.spreading import Spread, check_samplers
from deepbilevel.sharing.whole_group import Blank, WholeGroup


class SameModel(WholeGroup):
    """The way to other processes that hold the same numbers.

    Args:
        ranks: the processes.
        model: must hold the same numbers in all of them.
        parameters: the model's, each once.
        spread: what the processes share.
    """

    is_alone = False

    def __init__(self, ranks: Ranks, model: nn.Module, parameters: Sequence[Tensor], spread: Spread) -> None:
        self._ranks = ranks
        self._parameters = parameters
        self._spread: Spread = spread
        self._statistics = RunningStatistics(model)
        self._orders = [_memory_order(parameter) for parameter in parameters]
        self._checked = False
        switch_off_wrappers(model)

    def check_equality(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Compare checksums of settings and parameters, before anything of the model's size is sent."""
        if self._checked:
            return
        shapes = [(tuple(each.shape), str(each.dtype), each.requires_grad) for each in self._parameters]
        values = 0
        for each in (*self._parameters, self._statistics.at_start):
            content = each.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            values = zlib.crc32(content.numpy().tobytes(), values)
        described = checksum(settings(), self._spread, shapes, self._orders)
        for rank, others in enumerate(self._ranks.numbers_of_all([described, values], self._parameters[0].device)):
            if others[0] != described:
                raise ValueError(
                    f"process {rank} has other settings or other trainable parameters than process {self._ranks.rank}; "
                    "build model and rule alike in all processes"
                )
            if others[1] != values:
                raise ValueError(
                    f"the parameters or BatchNorm statistics of process {rank} differ from those of process "
                    f"{self._ranks.rank} before the first step; set the same seed before the model is built, load the "
                    "same weights, or wrap the model in DistributedDataParallel, which sends those of the first "
                    "process to all"
                )
        check_samplers(self._ranks.members, self._spread)
        self._checked = True

    def collect_statistics(self) -> None:
        """Note what the last forward pass did to BatchNorm layers."""
        if self._statistics.num_layers:
            self._statistics.collect()

    def forget(self) -> None:
        """Drop a half-collected group; running statistics go back to its start."""
        self._statistics.go_back()

    def _reduce(
        self,
        reduction: Callable[[Sequence[Tensor]], list[Tensor]],
        sums: Sequence[Gradients],
        blanks: Sequence[Blank],
        extras: Sequence[Tensor],
    ) -> list[Tensor]:
        """Reduce everything at once, ``sums`` in place; return the ``extras``."""
        positions = self._trainable()
        touched = [any(position in each for each in sums) for position in positions]
        vectors: list[Tensor] = []
        shapes: list[torch.Size] = []
        for each, blank in zip(sums, blanks, strict=True):
            for p in positions:
                own = each.pop(p, None)
                own = blank(self._parameters[p].detach()) if own is None else own
                vectors.append(self._flat(p, own))
                shapes.append(own.shape)
        flags = torch.tensor(touched, device=vectors[0].device, dtype=vectors[0].dtype)
        totals = reduction([*vectors, flags, *extras])
        flags, *others = totals[len(vectors) :]
        # Who has touched all of them need not wait for the device to learn that others have.
        present = touched if all(touched) else (flags > 0).tolist()
        for number, each in enumerate(sums):
            for i, (p, is_there) in enumerate(zip(positions, present, strict=True), start=number * len(positions)):
                if is_there:
                    each[p] = self._shaped(p, totals[i], shapes[i])
        return others

    def _trainable(self) -> list[int]:
        return [position for position, parameter in enumerate(self._parameters) if parameter.requires_grad]

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


def checksum(settings: Mapping[str, Any], *more: object) -> int:
    """Return a number that differs where plain settings, or anything else that is given, do."""
    plain = {name: value for name, value in settings.items() if isinstance(value, int | float | str)}
    return zlib.crc32(repr((plain, *more)).encode())


def _memory_order(tensor: Tensor) -> list[int]:
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
