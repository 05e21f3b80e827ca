"""Steps over a group that several processes work on: what they exchange, and when.

Each class overrides the few places where :class:`~deepbilevel.GroupStep` would take in, combine or put gradients alone.
The rule and its accumulator are the same as in one process.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from deepbilevel.contract import Accumulator, Blank, Outcome, ReportT
from deepbilevel.distributed.ranks import Broadcast, Ranks, quiet_wrappers
from deepbilevel.distributed.running_statistics import RunningStatistics
from deepbilevel.distributed.shards import ShardedLayout, Shards
from deepbilevel.distributed.spreads import Spread, check_samplers
from deepbilevel.gradients import AnyGradients, Gradients, Layout, put_gradients, wide_zeros, widen_gradients
from deepbilevel.shrunken_updates import ShrunkenUpdates
from deepbilevel.step import GroupStep


class SharedStep(GroupStep[ReportT]):
    """Base of all steps that talk to other processes.

    Args:
        step: says what is trained and how; it is not used any more.
        ranks: the processes.
        spread: what they share.
    """

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
        self.load_state_dict(step.state_dict())

    @property
    def is_shared(self) -> bool:
        """Other processes take part."""
        return True

    def _before_backward(self) -> None:
        super()._before_backward()
        if not self._checked:
            self._check_equality()
            check_samplers(self._ranks.members, self._spread)
            self._checked = True

    def _check_equality(self) -> None:
        """Refuse, once, to start from different settings or numbers: equal steps would keep them different for ever."""
        shapes = [(tuple(each.shape), str(each.dtype), each.requires_grad) for each in self._parameters]
        described = repr((self._settings(), self._spread, shapes, *self._described()))
        own = [zlib.crc32(described.encode()), self._checksum()]
        for rank, others in enumerate(self._ranks.numbers_of_all(own, self._parameters[0].device)):
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
        self._orders = [_memory_order(parameter) for parameter in self._parameters]
        quiet_wrappers(self, step.model)

    def collect(self, gradients: AnyGradients, loss: Tensor) -> None:
        """Take in the next mini-batch, and what its forward pass did to BatchNorm layers."""
        if self._statistics.num_layers:
            self._statistics.collect()
        super().collect(gradients, loss)

    def _start_again(self) -> None:
        self._statistics.go_back()
        super()._start_again()

    def _described(self) -> tuple[object, ...]:
        return (self._orders,)

    def _checksum(self) -> int:
        checksum = 0
        for each in (*self._parameters, self._statistics.at_start):
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
                own = blank(self._parameters[p].detach()) if own is None else own
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

    @property
    def _num_expected(self) -> int:
        return self._ranks.num_own(self._num_batches)

    def _describe_group(self) -> str:
        return f"this process's {self._num_expected} of num_batches={self._num_batches}"

    @property
    def _place(self) -> int:
        """The place in the group of the mini-batch that comes next."""
        return self._ranks.place(self.num_collected)

    def _before_backward(self) -> None:
        super()._before_backward()
        # Begin to receive while the own backward pass runs; unless this one is a second attempt.
        if self._rule.compares_with_first and self._place > 0 and not self._has_first and self._first is None:
            self._first = self._ranks.begin_broadcast(
                [self._flat(p, self._parameters[p].detach()) for p in self._trainable()]
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
        sent = [gradients[p] if p in gradients else torch.zeros_like(self._parameters[p]) for p in self._trainable()]
        self._first = self._ranks.begin_broadcast(
            [self._flat(p, each) for p, each in zip(self._trainable(), sent, strict=True)]
        )
        # What is on its way must not be overwritten.
        return self._shape(self._first.wait() if self._rule.overwrites_first else self._first.vectors)

    def _shape(self, parts: list[Tensor]) -> Gradients:
        positions = self._trainable()
        return {p: self._shaped(p, each, self._parameters[p].shape) for p, each in zip(positions, parts, strict=True)}

    def _combine(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
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

    def _start_again(self) -> None:
        self._first = None  # if it is still under way it will arrive, and nobody will read it
        self._has_first = False
        super()._start_again()


class AveragedStep(SameModelStep[ReportT]):
    """A group of its own in every process; the gradients that come of them are averaged, as torch's own wrapper does.

    Per step one mean of the model's size, and nothing else. What a rule compares stays in one process, so every rule
    can be used. A group of which nothing is learned has a gradient of zero, and counts as that in the mean. Every
    process has a report of its own.

    Args:
        step: says what is trained and how.
        ranks: the processes.
    """

    def __init__(self, step: GroupStep[ReportT], ranks: Ranks) -> None:
        super().__init__(step, ranks, "groups")
        self._all_finite = torch.tensor(True)

    def _combine(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        outcome = accumulator.finish(losses)
        results: list[tuple[Gradients, Blank]] = [(outcome.gradients, wide_zeros)]
        if outcome.factors is not None:
            results.append((outcome.factors, outcome.blank_factor))
        for each, _ in results:
            each.update(widen_gradients(each))  # one dtype, whoever has no gradient of a parameter
        report: Any = outcome.report
        extras = [self._rule.without_trace(report.finite).all().reshape(1).to(torch.float32)]
        if self._statistics.num_layers:
            extras.append(self._statistics.own_result())
        dtype = next(iter(outcome.gradients.values())).dtype
        extras = [each.to(torch.promote_types(each.dtype, dtype)) for each in extras]
        everywhere, *statistics = self._reduce(self._ranks.average, results, extras)
        for each in statistics:
            self._statistics.become_mean(each)
        self._statistics.start()
        self._all_finite = everywhere.squeeze() >= 1
        return outcome

    def _left_out_any(self, report: Any) -> Tensor:
        return ~self._all_finite


class ShardedStep(SharedStep[ReportT]):
    """Parameters cut into shards, one per process (FSDP2): all processes go through all k mini-batches.

    Every process runs its share of the images of each mini-batch, and torch averages the gradients and cuts them like
    the parameters. What goes over memory works on the own part alone. Only numbers are sent: inner products and squared
    norms, as they are needed, and the k losses.

    Args:
        step: says what is trained and how.
        shards: how parameters are cut.
    """

    def __init__(self, step: GroupStep[ReportT], shards: Shards) -> None:
        rule = step.rule
        scaled = "a scaler keeps a loss scale in each process" if step.scales_losses else None
        refused = rule.needs_whole_parameters or scaled
        if refused is not None:
            raise ValueError(
                f"{refused}, which parameters sharded by fully_shard do not allow; choose another, or train whole "
                "parameters with share(step, 'batches') or share(step, 'groups')"
            )
        if rule.needs_whole_rows is not None and not shards.keep_rows:
            raise ValueError(
                f"{rule.needs_whole_rows} needs all weights of an output channel in one process; let fully_shard cut "
                "along the first dimension, as it does by itself, or choose another"
            )
        self._shards = shards
        super().__init__(step, shards.ranks, "images")
        if self._updates is not None and self.optimizer is not None:
            self._updates = ShrunkenUpdates(self.optimizer, self._parameters, self._own_parts)

    def _make_layout(self) -> Layout:
        whole = super()._make_layout()
        parts = [self._shards.own_part(each) for each in self._parameters]
        return ShardedLayout(parts, whole.owners, self._parameters, self._ranks)

    def _own_parts(self, tensors: dict[int, Tensor]) -> dict[int, Tensor]:
        return {position: self._shards.own_part(each) for position, each in tensors.items()}

    def _gradients_of(self, loss: Tensor) -> Gradients:
        return self._own_parts(super()._gradients_of(loss))

    def _combine(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        (losses,) = self._ranks.average([losses])  # everybody has equally many images
        return accumulator.finish(losses)

    def _put(self, gradients: Gradients) -> None:
        joined = {position: self._shards.joined(position, each) for position, each in gradients.items()}
        put_gradients(self._parameters, joined)


def _memory_order(tensor: Tensor) -> list[int]:
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
