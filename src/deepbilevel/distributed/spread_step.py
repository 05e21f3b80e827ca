"""One group for all processes: each runs some of its mini-batches."""

from typing import Any

import torch
from torch import Tensor

from deepbilevel.contract import Accumulator, Outcome, ReportT
from deepbilevel.distributed.ranks import Broadcast, Ranks
from deepbilevel.distributed.shared_step import SameModelStep
from deepbilevel.gradients import AnyGradients, Gradients
from deepbilevel.step import GroupStep


class SpreadStep(SameModelStep[ReportT]):
    """One group whose mini-batches run in several processes; mini-batch i belongs to rank ``i mod size``.

    Per step the gradient of the first mini-batch goes to all if the rule compares with it, then one small message with
    the numbers of all k mini-batches, then one sum of the model's size. All processes end with the same gradient and
    the same report, of all k.

    Args:
        step: says what is trained and how.
        ranks: the processes.
    """

    def __init__(self, step: GroupStep[ReportT], ranks: Ranks) -> None:
        if not step.rule.spreads:
            raise ValueError(
                f"rule {step.rule.kind} compares gradients of different processes with each other, which would send "
                "all of them; choose another, share(step, 'groups') to give every process a group of its own, or "
                "share(step, 'nothing')"
            )
        ranks.check_share(step.num_batches)
        self._first: Broadcast | None = None
        self._has_first = False
        super().__init__(step, ranks, "batches")
        self.num_expected = ranks.num_own(self._num_batches)

    @property
    def _place(self) -> int:
        """The place in the group of the mini-batch that comes next."""
        return self._ranks.place(self.num_collected)

    def _before_backward(self) -> None:
        super()._before_backward()
        # Begin to receive while the own backward pass runs; unless this one is a second attempt.
        if self._rule.compares_with_first and self._place > 0 and not self._has_first and self._first is None:
            self._first = self._ranks.begin_broadcast(
                [self._flat(p, self.parameters[p].detach()) for p in self._trainable()]
            )

    def _add(self, accumulator: Any, gradients: AnyGradients) -> None:
        place = self._place
        if self._rule.compares_with_first and not self._has_first:
            if place == 0:
                gradients = self._send_first(gradients)
            else:
                assert self._first is not None
                accumulator.validate(self._shape(self._first.wait()))
            self._has_first = True
        accumulator.add(gradients, place)

    def _send_first(self, gradients: Any) -> Gradients:
        """Begin to send, while the own mini-batches go on; return what is sent."""
        sent = [gradients[p] if p in gradients else torch.zeros_like(self.parameters[p]) for p in self._trainable()]
        self._first = self._ranks.begin_broadcast(
            [self._flat(p, each) for p, each in zip(self._trainable(), sent, strict=True)]
        )
        # What is on its way must not be overwritten.
        return self._shape(self._first.wait() if self._rule.overwrites_first else self._first.vectors)

    def _shape(self, parts: list[Tensor]) -> Gradients:
        positions = self._trainable()
        return {p: self._shaped(p, each, self.parameters[p].shape) for p, each in zip(positions, parts, strict=True)}

    def _finish(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        losses, uses = self._complete_rows(accumulator, losses)
        for sums in accumulator.sums():
            extras: list[Tensor] = []
            if uses is not None:
                places = slice(self._ranks.rank, None, self._ranks.size)
                extras.append(self._statistics.own_part(uses, places))
            others = self._reduce(self._ranks.add_up, sums, extras)
            if uses is not None:  # the first sum brings the running statistics along
                self._statistics.finish(others[0], uses)
                self._statistics.start()
                uses = None
        return accumulator.finish(losses)

    def _complete_rows(self, accumulator: Accumulator[ReportT], losses: Tensor) -> tuple[Tensor, Tensor | None]:
        """Exchange all numbers per mini-batch in one small message; return all losses, and how often layers ran."""
        own = torch.stack(accumulator.columns(), dim=1)  # [own, numbers of a row, ...]
        columns = [losses[:, None].to(torch.float64), own.flatten(1).to(torch.float64)]
        if self._statistics.num_layers:
            columns.append(self._statistics.uses.to(torch.float64))
        rows = self._ranks.rows_of_all(torch.cat(columns, dim=1), self._num_batches)
        all_losses, numbers, *uses = rows.split([each.shape[1] for each in columns], dim=1)
        for place, row in enumerate(numbers.unbind()):
            accumulator.rows[place] = row.reshape(own.shape[1:]).to(own.dtype)
        return all_losses.squeeze(1).to(losses.dtype), uses[0].round().long() if uses else None

    def _draw_dropout_seed(self) -> int:
        return self._ranks.number_of_first(super()._draw_dropout_seed(), self.device)

    def reset(self) -> None:
        """Drop a half-collected group."""
        self._first = None  # if it is still under way it will arrive, and nobody will read it
        self._has_first = False
        super().reset()
