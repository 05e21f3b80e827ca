"""A group whose mini-batches are collected in several processes: what a rule exchanges with the others, and when.

Per step: the gradient of the first mini-batch goes to all if the rule asks for it, then one small message with the
numbers of all k mini-batches, then one sum of the model's size. This module knows gradients and places in a group; who
runs where is ``distributed/``, and what becomes of the gradients is the rule's.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deepbilevel.distributed import Broadcast, Ranks
from deepbilevel.gradients import AnyGradients, Gradients, multiply_out
from deepbilevel.sharing.same_model import SameModel
from deepbilevel.sharing.whole_group import Blank


class SpreadGroup(SameModel):
    """The own share of a group, and the way to the others.

    Args:
        ranks: the processes.
        model: must hold the same numbers in all of them.
        parameters: the model's, each once.
    """

    is_whole = False

    def __init__(self, ranks: Ranks, model: nn.Module, parameters: Sequence[Tensor]) -> None:
        super().__init__(ranks, model, parameters, "batches")
        self._uses: Tensor | None = None
        self._first: Broadcast | None = None

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
                "choose another, pass spread='groups' to give every process a group of its own, or process_group=False "
                "to keep the group in one process"
            )
        self._ranks.check_share(num_batches)

    def forget(self) -> None:
        """Drop a half-collected group; running statistics go back to its start."""
        self._first = None  # if it is still under way it will arrive, and nobody will read it
        self._uses = None
        super().forget()

    def number_of_first(self, number: int, device: torch.device) -> int:
        """Return the first process's number."""
        return self._ranks.number_of_first(number, device)

    def expect_first(self) -> None:
        """Begin to receive, while the own backward pass runs."""
        if self._first is None:  # else the backward pass is a second attempt
            self._first = self._ranks.begin_broadcast(
                [self._flat(p, self._parameters[p].detach()) for p in self._trainable()]
            )

    def send_first(self, gradients: AnyGradients, *, wait: bool) -> AnyGradients:
        """Begin to send, while the own mini-batches go on."""
        gradients = multiply_out(gradients)
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
        extras = [] if numbers is None else [numbers]
        if self._uses is not None:
            places = slice(self._ranks.rank, None, self._ranks.size)
            extras.append(self._statistics.own_part(self._uses, places))
        others = self._reduce(self._ranks.add_up, sums, blanks, extras)
        if self._uses is not None:
            self._statistics.finish(others.pop(), self._uses)
            self._uses = None
            self._statistics.start()
        return others.pop() if others else None

    def _shape(self, parts: list[Tensor]) -> Gradients:
        positions = self._trainable()
        return {p: self._shaped(p, each, self._parameters[p].shape) for p, each in zip(positions, parts, strict=True)}
