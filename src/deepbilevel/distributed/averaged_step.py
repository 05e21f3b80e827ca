"""A group for every process: their gradients are averaged."""

import torch
from torch import Tensor

from deepbilevel.contract import Accumulator, Blank, Outcome, ReportT
from deepbilevel.distributed.ranks import Ranks
from deepbilevel.distributed.shared_step import SameModelStep
from deepbilevel.gradients import Gradients, wide_zeros, widen_gradients
from deepbilevel.step import GroupStep


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

    def _finish(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        outcome = accumulator.finish(losses)
        results: list[tuple[Gradients, Blank]] = [(outcome.gradients, wide_zeros)]
        if outcome.factors is not None:
            results.append((outcome.factors, outcome.blank_factor))
        for each, _ in results:
            each.update(widen_gradients(each))  # one dtype, whoever has no gradient of a parameter
        extras = [self._rule.silently_left_out(outcome.report.finite).all().reshape(1).to(torch.float32)]
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

    def _put(self, outcome: Outcome[ReportT]) -> None:
        self._autograd.put(outcome.gradients, self._all_finite)  # all lower their loss scale, or none
