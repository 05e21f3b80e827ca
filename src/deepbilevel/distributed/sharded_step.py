"""Parameters in shards: each process runs some images of every mini-batch."""

from collections.abc import Sequence

from torch import Tensor

from deepbilevel.contract import Accumulator, Outcome, ReportT
from deepbilevel.distributed.shards import ShardedLayout, Shards
from deepbilevel.distributed.shared_step import SharedStep
from deepbilevel.gradients import Gradients
from deepbilevel.loss_scaling import is_scaling
from deepbilevel.parameters import Autograd
from deepbilevel.shrunken_updates import ShrunkenUpdates
from deepbilevel.step import GroupStep


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
        scaled = "a scaler keeps a loss scale in each process" if is_scaling(step.scaler) else None
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
        super().__init__(step, shards.ranks, "images")
        parts = [shards.own_part(each) for each in self.parameters]
        self._layout = ShardedLayout(parts, self._layout.owners, self.parameters, self._ranks)
        self._autograd = _ShardedAutograd(self.parameters, shards)
        if self._updates is not None and self.optimizer is not None:
            self._updates = ShrunkenUpdates(self.optimizer, self.parameters, shards.own_parts)

    def _finish(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        (losses,) = self._ranks.average([losses])  # everybody has equally many images
        return accumulator.finish(losses)


class _ShardedAutograd(Autograd):
    """Takes the own parts out of gradients, and makes whole ones of them for ``.grad``."""

    def __init__(self, parameters: Sequence[Tensor], shards: Shards) -> None:
        super().__init__(parameters)
        self._shards = shards

    def gradients_of(self, loss: Tensor) -> Gradients:
        return self._shards.own_parts(super().gradients_of(loss))

    def put(self, gradients: Gradients, finite: Tensor) -> None:
        joined = {position: self._shards.joined(position, each) for position, each in gradients.items()}
        super().put(joined, finite)
