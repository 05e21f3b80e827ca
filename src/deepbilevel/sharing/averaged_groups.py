"""A group of its own in every process: the gradients that come of them are averaged, as torch's own wrapper does.

Per step one mean of the model's size, and nothing else; what a rule compares stays in one process, so every rule can
be used. A group of which nothing is learned has a gradient of zero, and counts as that in the mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deepbilevel.distributed import Ranks
from deepbilevel.gradients import Gradients, widen_gradients
from deepbilevel.sharing.same_model import SameModel
from deepbilevel.sharing.whole_group import Blank


class AveragedGroups(SameModel):
    """The own group, and the way to the mean over everybody's.

    Args:
        ranks: the processes.
        model: must hold the same numbers in all of them.
        parameters: the model's, each once.
    """

    def __init__(self, ranks: Ranks, model: nn.Module, parameters: Sequence[Tensor]) -> None:
        super().__init__(ranks, model, parameters, "groups")

    def average(self, results: Sequence[Gradients], blanks: Sequence[Blank], finite: Tensor) -> Tensor:
        """Average everything in one reduction, running statistics too.

        Those that are not finite are left out, so that one process does not spoil the others.
        """
        for each in results:
            each.update(widen_gradients(each))  # one dtype, whoever has no gradient of a parameter
        extras = [finite.all().reshape(1).to(torch.float32)]
        if self._statistics.num_layers:
            extras.append(self._statistics.own_result())
        dtype = next(iter(results[0].values())).dtype
        everywhere, *statistics = self._reduce(
            self._ranks.average, results, blanks, [each.to(torch.promote_types(each.dtype, dtype)) for each in extras]
        )
        for each in statistics:
            self._statistics.become_mean(each)
        self._statistics.start()
        return everywhere >= 1
