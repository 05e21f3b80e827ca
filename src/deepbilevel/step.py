"""The training loop around a rule: k losses in, ``.grad`` filled, a report out.

The rule (``rules/``) decides how k gradients become one. This module knows when a mini-batch's gradient is complete and
where the result goes.

    step = GroupStep(model, BilevelRule(), num_batches=8)   # which is what Bilevel(model, num_batches=8) makes
    for x, y in loader:
        step.backward(criterion(model(x), y))               # instead of loss.backward()
        if step.full:                                       # after every 8th mini-batch
            step.fill()
            optimizer.step()                                # clip before it, as usual; no zero_grad

Weight decay stays with the optimizer: the rule does not see it.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from deepbilevel.checks import check_alone, check_gradients, check_loss
from deepbilevel.contract import Accumulator, Outcome, ReportT, Rule
from deepbilevel.gradients import AnyGradients, Gradients
from deepbilevel.parameters import Parameters, emptied_gradients
from deepbilevel.step_base import StepBase

if TYPE_CHECKING:
    from deepbilevel.sampling import MatchedGroups, MatchedLoader

Batch = TypeVar("Batch")


class GroupStep(StepBase[ReportT]):
    """One step over a group of k mini-batches, by any rule.

    >>> from deepbilevel import GroupStep
    >>> from deepbilevel.rules.bilevel import BilevelRule
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> step = GroupStep(model, BilevelRule(), num_batches=3)
    >>> for x in torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]):
    ...     step.backward(model(x).sum())
    >>> report = step.fill()
    >>> model.weight.grad  # the first training mini-batch agrees with validation, the second is orthogonal
    tensor([[1., 0.]])

    Args:
        model_or_parameters: a module, its parameters, or an optimizer's ``param_groups``. Frozen parameters may be
            among them; freezing and unfreezing later is noticed.
        rule: how the k gradients become one.
        num_batches: k, the number of mini-batches in a group.
        optimizer: needed only by rules that scale the optimizer's update (``shrinks_updates``). Two hooks are
            registered on it, and removed when this object is deleted.
        scaler: the ``torch.amp.GradScaler`` of a float16 loop. Pass unscaled losses to :meth:`backward`; ``fill``
            leaves scaled gradients, so ``scaler.unscale_``, ``scaler.step`` and ``scaler.update`` follow as usual.
    """

    def __init__(
        self,
        model_or_parameters: Parameters,
        rule: Rule[ReportT],
        *,
        num_batches: int,
        optimizer: Optimizer | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        # The base checks and keeps these. It knows which parameters belong together (`_layout`), what the rule
        # remembers from group to group (`_memory`), how gradients leave and enter `.grad` (`_autograd`), and how many
        # of the k mini-batches are collected here (`num_expected`: all, unless processes share a group).
        super().__init__(model_or_parameters, rule, num_batches, optimizer, scaler)
        self._accumulator: Accumulator[ReportT] | None = None  # the rule at work on the current group
        self._losses: list[Tensor] = []

    @property
    def num_collected(self) -> int:
        """How many mini-batches of the current group have been handed to :meth:`backward`."""
        return len(self._losses)

    @property
    def full(self) -> bool:
        """Whether all mini-batches of the group are in and :meth:`fill` is due."""
        return self.num_collected == self.num_expected

    def backward(self, loss: Tensor, *, labels: Tensor | None = None) -> None:
        """Compute and collect the gradient of one mini-batch; call this instead of ``loss.backward()``.

        ``.grad`` is set to None and stays so until :meth:`fill`: gradients of other backward passes in between are
        lost. When :attr:`full` is true, call :meth:`fill`, then step the optimizer; ``zero_grad`` is not needed.

        If the loss is refused or autograd fails, the group and ``.grad`` are as before: call again. If adding up fails
        (out of memory, Ctrl-C), the group is dropped and the next call starts a new one. A group that is not full goes
        on with the next call, also in the next epoch, unless :meth:`reset` drops it.

        Args:
            loss: of one mini-batch, not divided by k.
            labels: of its samples, if it is to be checked that the mini-batches of a group carry the same. Pass them
                as they come from the loader: to compare labels on a GPU, the loop waits for it.
        """
        self._check_not_full()
        check_loss(loss, self.device)
        if not self._losses:  # once per group is soon enough, and costs a walk over the modules
            self._check_model_unchanged()
            self._guard.begin_group(self, loss)
        if labels is not None:
            self._guard.check_labels(self, labels)
        with emptied_gradients(self.parameters):
            gradients = self._gradients_of(loss)
            check_gradients(gradients)  # that there are any; what becomes of NaN is up to the rule
        try:
            self.collect(gradients, loss)
        except BaseException:  # out of memory, Ctrl-C: a group that is half added up is of no use
            self.reset()
            raise

    def collect(self, gradients: AnyGradients, loss: Tensor) -> None:
        """Take in the gradients of the next mini-batch and its loss; :meth:`backward` is this after autograd."""
        if self._accumulator is None:
            self._accumulator = self._rule.start(self._layout, self._num_batches, self._memory)
            self._shrink_updates({})  # of the few rules that shrink the optimizer's update; the last group is over
        self._add(self._accumulator, gradients)
        self._losses.append(loss.detach().reshape(()))

    def fill(self) -> ReportT:
        """Write the group's gradient to ``.grad``, replacing what is there, and start the next group.

        After an error the group is dropped, and ``.grad`` is not to be trusted.
        """
        self._check_full()
        assert self._accumulator is not None  # the first mini-batch has set it
        try:
            outcome = self._finish(self._accumulator, torch.stack(self._losses))
            self._put(outcome)
            self._shrink_updates(outcome.factors or {})
        finally:  # also after an error: the sums were changed in place, and a second attempt would fill nonsense
            self.reset()
        return outcome.report

    def reset(self) -> None:
        """Drop what is collected, as after an interrupted epoch; ``.grad`` is left alone."""
        self._losses, self._accumulator, self._dropout_seed = [], None, None

    def step_over(
        self, group: Iterable[Batch], loss_of: Callable[[Batch], Tensor], *, shared_dropout: bool = False
    ) -> ReportT:
        """Run a whole group: forward and backward of k mini-batches, then :meth:`fill`.

        Args:
            group: the k mini-batches; or an iterator, of which the next k are taken.
            loss_of: computes the loss of one mini-batch, forward pass included.
            shared_dropout: draw the same dropout masks for all k forward passes.
        """
        try:
            for batch in self.next_batches(group, "step_over()"):
                with self.shared_dropout() if shared_dropout else nullcontext():
                    loss = loss_of(batch)
                self.backward(loss)
        except BaseException:
            self.reset()
            raise
        return self.fill()

    def loader(self, dataset: Any, labels: Any, *, batch_size: int, seed: int, **options: Any) -> "MatchedLoader":
        """Return a ``DataLoader`` of matched groups of this step's size, dealt out to processes as the step is.

        Args:
            dataset: anything with ``__getitem__``.
            labels: one class for each of its items; more in :class:`~deepbilevel.MatchedGroups`.
            batch_size: how many items each mini-batch has.
            seed: determines every epoch.
            options: of the ``DataLoader``, and ``holdout``, ``draw`` and ``on_rare`` of ``MatchedGroups``.
        """
        from deepbilevel.sampling.loader import make_loader  # imported here because some have a sampler of their own

        return make_loader(self, dataset, labels, batch_size=batch_size, seed=seed, **options)

    def step_at_once(
        self, group: Iterable[Batch], losses_of: Callable[[Batch], Tensor], *, samples_per_pass: int | None = None
    ) -> ReportT:
        """Run a whole group in few passes over many mini-batches; see :func:`deepbilevel.one_pass.step_at_once`."""
        from deepbilevel.one_pass import step_at_once  # imported here because most users never need it

        return step_at_once(self, group, losses_of, samples_per_pass=samples_per_pass)

    # Where several processes work together, `distributed/` overrides these five.

    def deal(self, groups: "MatchedGroups") -> "MatchedGroups":
        """Return the sampler of what this process gets of groups."""
        return groups.alone() if self.alone_on_purpose else groups

    def _gradients_of(self, loss: Tensor) -> Gradients:
        if not self.alone_on_purpose:
            check_alone()  # refuses to guess what other processes of torch.distributed are for
        return self._autograd.gradients_of(loss)

    def _add(self, accumulator: Accumulator[ReportT], gradients: AnyGradients) -> None:
        accumulator.add(gradients, self.num_collected)  # pyright: ignore[reportArgumentType] (takes_products)

    def _finish(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        return accumulator.finish(losses)

    def _put(self, outcome: Outcome[ReportT]) -> None:
        # The rule may have left mini-batches that overflowed out of the gradient. A loss scaler must hear of them, to
        # lower its scale; without one the flags are not looked at.
        self._autograd.put(outcome.gradients, finite=self._rule.silently_left_out(outcome.report.finite))
