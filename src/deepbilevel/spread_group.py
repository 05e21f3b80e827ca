"""A group whose mini-batches are collected in several processes: what a rule exchanges with the others, and when.

Per step: the gradient of the first mini-batch goes to all if the rule asks for it, then one small message with the
numbers of all k mini-batches, then one sum of the model's size. This module knows gradients and places in a group; who
runs where is ``distributed.py``, and what becomes of the gradients is the rule's.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepbilevel.distributed import Broadcast, ProcessGroupChoice, Ranks, find_ranks, switch_off_wrappers
from deepbilevel.gradients import Gradients
from deepbilevel.running_statistics import RunningStatistics

Blank = Callable[[Tensor], Tensor]
"""Makes the zeros that stand for a sum to which no own mini-batch contributed, from its parameter."""


def wide_zeros(parameter: Tensor) -> Tensor:
    """Return zeros of the parameter's shape, of float32 at the least."""
    return torch.zeros_like(parameter, dtype=torch.promote_types(parameter.dtype, torch.float32))


class WholeGroup:
    """A group that one process collects: nothing is exchanged, and what a rule has is what there is."""

    is_whole = True

    def num_own(self, num_batches: int) -> int:
        """Return how many of a group's mini-batches are this process's."""
        return num_batches

    def place(self, num_collected: int) -> int:
        """Return the place in the group of this process's mini-batch that comes after ``num_collected`` others."""
        return num_collected

    def check(self, num_batches: int, refused: str | None = None) -> None:
        """Refuse too few mini-batches for all processes, and what must see all gradients in one place (``refused``)."""

    def check_equality(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Refuse, once, to start from different numbers: steps alike would keep them different for ever."""

    def collect_statistics(self) -> None:
        """Note what the last forward pass did to the running statistics."""

    def forget(self) -> None:
        """Drop a half-collected group; all processes must do so, at the same place."""

    def number_of_first(self, number: int, device: torch.device) -> int:
        """Return the number that the first process has."""
        return number

    def expect_first(self) -> None:
        """Get ready to receive the gradient of the group's first mini-batch."""

    def send_first(self, gradients: Gradients, *, wait: bool) -> Gradients:
        """Send the gradient of the first mini-batch to all; ``wait`` if what is returned will be overwritten."""
        return gradients

    def receive_first(self) -> Gradients:
        """Return the gradient of the first mini-batch; a parameter that it did not touch has zeros."""
        raise AssertionError("the first mini-batch of a whole group is an own one")

    def of_group(self, columns: tuple[Tensor, ...], num_batches: int) -> tuple[Tensor, ...]:
        """Return what the own mini-batches have, ``[own, ...]``, for all k of the group, ``[k, ...]``, in its order."""
        return columns

    def over_group(self, sums: Sequence[Gradients], blanks: Sequence[Blank], numbers: Tensor | None) -> Tensor | None:
        """Turn the own sums into those over all mini-batches, in place; and add up ``numbers`` on the way.

        A parameter that has a gradient in any process has one in all.
        """
        return numbers


class SpreadGroup(WholeGroup):
    """The own share of a group, and the way to the others.

    Args:
        ranks: the processes.
        model: must hold the same numbers in all of them.
        parameters: the model's, each once.
    """

    is_whole = False

    def __init__(self, ranks: Ranks, model: nn.Module, parameters: Sequence[Tensor]) -> None:
        self._ranks = ranks
        self._parameters = parameters
        self._statistics = RunningStatistics(model)
        self._orders = [_memory_order(parameter) for parameter in parameters]
        self._checked = False
        self._uses: Tensor | None = None
        self._first: Broadcast | None = None
        switch_off_wrappers(model)

    def num_own(self, num_batches: int) -> int:
        """Return how many mini-batches fall to this process."""
        return self._ranks.num_own(num_batches)

    def place(self, num_collected: int) -> int:
        """Return where the next own mini-batch stands in the group."""
        return self._ranks.place(num_collected)

    def check(self, num_batches: int, refused: str | None = None) -> None:
        """Refuse what cannot be spread."""
        if refused is not None:
            raise ValueError(
                f"{refused} compares gradients of different processes with each other, which would send all of them; "
                "choose another, or pass process_group=False to keep the group in one process"
            )
        self._ranks.check_share(num_batches)

    def check_equality(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        """Compare checksums of settings and parameters, before anything of the model's size is sent."""
        if self._checked:
            return
        plain = {name: value for name, value in settings().items() if isinstance(value, int | float | str)}
        shapes = [(tuple(each.shape), str(each.dtype), each.requires_grad) for each in self._parameters]
        values = 0
        for each in (*self._parameters, self._statistics.at_start):
            content = each.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            values = zlib.crc32(content.numpy().tobytes(), values)
        described = zlib.crc32(repr((plain, shapes, self._orders)).encode())
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
        self._checked = True

    def collect_statistics(self) -> None:
        """Note what the last forward pass did to BatchNorm layers."""
        if self._statistics.num_layers:
            self._statistics.collect()

    def forget(self) -> None:
        """Drop a half-collected group; running statistics go back to its start."""
        self._first = None  # if it is still under way it will arrive, and nobody will read it
        self._uses = None
        self._statistics.go_back()

    def number_of_first(self, number: int, device: torch.device) -> int:
        """Return the first process's number."""
        return self._ranks.number_of_first(number, device)

    def expect_first(self) -> None:
        """Begin to receive, while the own backward pass runs."""
        if self._first is None:  # else the backward pass is a second attempt
            self._first = self._ranks.begin_broadcast(
                [self._flat(p, self._parameters[p].detach()) for p in self._trainable()]
            )

    def send_first(self, gradients: Gradients, *, wait: bool) -> Gradients:
        """Begin to send, while the own mini-batches go on."""
        sent = [gradients[p] if p in gradients else torch.zeros_like(self._parameters[p]) for p in self._trainable()]
        self._first = self._ranks.begin_broadcast(
            [self._flat(p, each) for p, each in zip(self._trainable(), sent, strict=True)]
        )
        return self._shape(self._first.wait() if wait else self._first.vectors)

    def receive_first(self) -> Gradients:
        """Return the gradient when it has arrived."""
        assert self._first is not None
        return self._shape(self._first.wait())

    def of_group(self, columns: tuple[Tensor, ...], num_batches: int) -> tuple[Tensor, ...]:
        """Exchange all numbers in one small message, together with how often layers were used."""
        own = [column.reshape(len(column), -1).to(torch.float64) for column in columns]
        if self._statistics.num_layers:
            own.append(self._statistics.uses.to(torch.float64))
        rows = self._ranks.rows_of_all(torch.cat(own, dim=1), num_batches)
        parts = rows.split([each.shape[1] for each in own], dim=1)
        if self._statistics.num_layers:
            self._uses = parts[-1].round().long()
        return tuple(
            part.reshape(num_batches, *column.shape[1:]).to(column.dtype)
            for part, column in zip(parts, columns, strict=False)
        )

    def over_group(self, sums: Sequence[Gradients], blanks: Sequence[Blank], numbers: Tensor | None) -> Tensor | None:
        """Add up everything in one reduction; the first of a group brings the running statistics along."""
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
        extras = [torch.tensor(touched, device=vectors[0].device, dtype=vectors[0].dtype)]
        if numbers is not None:
            extras.append(numbers)
        if self._uses is not None:
            places = slice(self._ranks.rank, None, self._ranks.size)
            extras.append(self._statistics.own_part(self._uses, places))
        totals = self._ranks.add_up([*vectors, *extras])
        flags, *others = totals[len(vectors) :]
        # Who has touched all of them need not wait for the device to learn that others have.
        present = touched if all(touched) else (flags > 0).tolist()
        for number, each in enumerate(sums):
            for i, (p, is_there) in enumerate(zip(positions, present, strict=True), start=number * len(positions)):
                if is_there:
                    each[p] = self._shaped(p, totals[i], shapes[i])
        if self._uses is not None:
            self._statistics.finish(others.pop(), self._uses)
            self._uses = None
            self._statistics.start()
        return others.pop() if others else None

    def _shape(self, parts: list[Tensor]) -> Gradients:
        positions = self._trainable()
        return {p: self._shaped(p, each, self._parameters[p].shape) for p, each in zip(positions, parts, strict=True)}

    def _trainable(self) -> list[int]:
        return [position for position, parameter in enumerate(self._parameters) if parameter.requires_grad]

    def _flat(self, position: int, tensor: Tensor) -> Tensor:
        """Return the numbers in the order of the parameter's memory, which is the same in all processes."""
        return tensor.permute(self._orders[position]).reshape(-1)

    def _shaped(self, position: int, flat: Tensor, shape: torch.Size) -> Tensor:
        order = self._orders[position]
        return flat.view([shape[dim] for dim in order]).permute([order.index(dim) for dim in range(len(order))])


def _memory_order(tensor: Tensor) -> list[int]:
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def share_group(
    process_group: ProcessGroupChoice, model: nn.Module | None, parameters: Sequence[Tensor]
) -> WholeGroup | SpreadGroup:
    """Return how a group is collected: here alone, or together with the processes of ``process_group``."""
    ranks = find_ranks(process_group)
    if ranks is None:
        return WholeGroup()
    if model is None:
        raise TypeError(
            "a group that is spread over processes needs the model itself as model_or_parameters, to keep its "
            "BatchNorm statistics equal; pass it, or process_group=False to keep the group in one process"
        )
    return SpreadGroup(ranks, model, parameters)
