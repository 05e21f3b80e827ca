"""The training loop around a rule: k losses in, ``.grad`` filled, a report out.

This module knows when a mini-batch's gradient is complete and where the result goes. What becomes of k gradients is the
rule's (``rules/``). It never calls ``optimizer.step()``: after ``fill`` the caller clips, steps and schedules as usual.

    for x, y in loader:
        step.backward(criterion(model(x), y))
        if step.full:
            step.fill()
            optimizer.step()
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import TypeVar

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from deepbilevel.checks import check_alone, check_gradients, check_loss
from deepbilevel.contract import Accumulator, Outcome, ReportT, Rule
from deepbilevel.gradients import AnyGradients, Gradients
from deepbilevel.parameters import Parameters, emptied_gradients
from deepbilevel.step_base import StepBase

Batch = TypeVar("Batch")


class GroupStep(StepBase[ReportT]):
    """One step over a group of k mini-batches, by any rule.

    >>> from deepbilevel import GroupStep
    >>> from deepbilevel.rules.and_mask import AndMask
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> step = GroupStep(model, AndMask(), num_batches=2)
    >>> for x in torch.tensor([[[1.0, 4.0]], [[3.0, -1.0]]]):
    ...     step.backward(model(x).sum())
    >>> report = step.fill()
    >>> model.weight.grad  # the mini-batches agree on the sign of the first parameter only
    tensor([[2., 0.]])

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
        # The base checks and keeps these, and knows which parameters belong together (`_layout`), what the rule
        # remembers from group to group (`_memory`), and how to get at gradients (`_autograd`).
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

    def backward(self, loss: Tensor) -> None:
        """Compute and collect the gradient of one mini-batch; call this instead of ``loss.backward()``.

        ``.grad`` is set to None and stays so until :meth:`fill`: gradients of other backward passes in between are
        lost. When :attr:`full` is true, call :meth:`fill`, then step the optimizer; ``zero_grad`` is not needed.
        """
        self._check_not_full()
        check_loss(loss, self.device)
        with emptied_gradients(self.parameters):
            gradients = self._gradients_of(loss)
            check_gradients(gradients)
        try:
            self.collect(gradients, loss)
        except BaseException:  # out of memory, Ctrl-C: a group that is half added up is of no use
            self.reset()
            raise

    def collect(self, gradients: AnyGradients, loss: Tensor) -> None:
        """Take in the gradients of the next mini-batch and its loss; :meth:`backward` is this after autograd."""
        if self._accumulator is None:
            self._accumulator = self._rule.start(self._layout, self._num_batches, self._memory)
            self._shrink_updates({})  # the factors belonged to the last group's gradient
        self._add(self._accumulator, gradients)
        self._losses.append(loss.detach().reshape(()))

    def fill(self) -> ReportT:
        """Write the group's gradient to ``.grad``, replacing what is there, and start the next group."""
        self._check_full()
        assert self._accumulator is not None  # it has been since the first mini-batch
        try:
            outcome = self._finish(self._accumulator, torch.stack(self._losses))
            self._put(outcome)
            self._shrink_updates(outcome.factors or {})
        finally:  # also after an error: sums are used up, and a second attempt would fill nonsense
            self.reset()
        return outcome.report

    def reset(self) -> None:
        """Drop a half-collected group, as after an interrupted epoch; ``.grad`` is left alone."""
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

    def step_at_once(
        self, group: Iterable[Batch], losses_of: Callable[[Batch], Tensor], *, samples_per_pass: int | None = None
    ) -> ReportT:
        """Run a whole group in few passes over many mini-batches; see :func:`deepbilevel.one_pass.step_at_once`."""
        from deepbilevel.one_pass import step_at_once  # imported here because most users never need it

        return step_at_once(self, group, losses_of, samples_per_pass=samples_per_pass)

    # What several processes do in another way (`distributed/`); alone it is this.

    def _gradients_of(self, loss: Tensor) -> Gradients:
        if not self.alone_on_purpose:
            check_alone()
        return self._autograd.gradients_of(loss)

    def _add(self, accumulator: Accumulator[ReportT], gradients: AnyGradients) -> None:
        accumulator.add(gradients, self.num_collected)  # pyright: ignore[reportArgumentType] (takes_products)

    def _finish(self, accumulator: Accumulator[ReportT], losses: Tensor) -> Outcome[ReportT]:
        return accumulator.finish(losses)

    def _put(self, outcome: Outcome[ReportT]) -> None:
        self._autograd.put(outcome.gradients, self._rule.without_trace(outcome.report.finite))
