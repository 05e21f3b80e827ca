"""Whole groups in one call: mini-batch by mini-batch, or several of them in one pass.

Both are loops that a user could write around ``group_collector.py``; rules see no difference.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import nullcontext
from functools import partial
from itertools import islice
from numbers import Integral
from typing import TypeVar

import torch
from torch import Tensor

from deepbilevel.gradients import emptied_gradients
from deepbilevel.group_checks import check_gradients, check_losses
from deepbilevel.group_collector import GroupCollector, ReportT
from deepbilevel.joined_batches import join_batches
from deepbilevel.one_pass import run_in_one_pass

Batch = TypeVar("Batch")
# More are not faster there and need more memory; nor is joining mini-batches that are large (docs/performance.md).
_SAMPLES_PER_PASS_ON_CPU, _LARGE_ON_CPU = 128, 64


class GroupStep(GroupCollector[ReportT]):
    """What rules derive from: the loop contract, and ways to run a whole group.

    Arguments are those of :class:`~deepbilevel.group_collector.GroupCollector`.
    """

    def step_over(
        self, group: Iterable[Batch], loss_of: Callable[[Batch], Tensor], *, shared_dropout: bool = False
    ) -> ReportT:
        """Run a whole group: forward and backward of k mini-batches, then :meth:`fill`.

        Args:
            group: the k mini-batches, validation first, or this process's share of them; or an iterator, of which
                the next ones are taken.
            loss_of: computes the loss of one mini-batch, forward pass included.
            shared_dropout: draw the same dropout masks for all k forward passes.
        """
        batches = self._next_of(group, "step_over()")
        try:
            for batch in batches:
                with self.shared_dropout() if shared_dropout else nullcontext():
                    loss = loss_of(batch)
                self.backward(loss)
            self._check_ended(self.num_collected)
        except BaseException:
            self.reset()
            raise
        return self.fill()

    def step_at_once(
        self,
        group: Iterable[Batch],
        losses_of: Callable[[Batch], Tensor],
        *,
        samples_per_pass: int | None = None,
    ) -> ReportT:
        """Run a whole group in few forward and backward passes; the result is that of :meth:`step_over`.

        About as fast as plain training with all samples in one batch, where small mini-batches by themselves are not.
        In exchange it holds the gradients of convolutions for every mini-batch of a pass. Parameters may be used by
        torch's linear layers, convolutions, embeddings and normalisations, as they are; other uses are refused, and so
        are hooks on parameters, a scaler and several processes. Not noticed, so yours to see to:

        - Samples do not meet in the network other than in BatchNorm, which sees each mini-batch on its own, and are
          the first dimension of what every layer gets, in their order. Looking up as many positions, once for all
          samples, as there are samples would go wrong: look them up for each, as in ``positions.expand(len(x), -1)``.
        - Of losses per sample a mini-batch's is the mean; a loss that divides by something else, as with class
          weights, must be computed for each mini-batch. Dropout is drawn for every sample.
        - BatchNorm counts passes, so ``momentum=None`` averages wrongly; one that is used twice in a pass moves its
          running statistics in another order. Where its output is computed again (activation checkpointing), it must
          have trainable parameters to be noticed.

        >>> from deepbilevel import Bilevel
        >>> model = torch.nn.Linear(2, 1, bias=False)
        >>> bilevel = Bilevel(model, num_batches=3)
        >>> group = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
        >>> bilevel.step_at_once(group, lambda x: model(x).squeeze(1)).weights
        tensor([1., 0.])

        Args:
            group: the k mini-batches, validation first, of tensors or of tuples, lists or dictionaries of them; or an
                iterator, of which the next ones are taken.
            losses_of: computes one loss per sample, forward pass included, or one per mini-batch; given are the
                mini-batches of a pass in one, k or fewer. Where each loss belongs is told by its place alone.
            samples_per_pass: as many mini-batches share a pass as have so many samples together, and one at the least.
                ``None``: 128 on a CPU, where more are not faster and mini-batches of 64 by themselves fast enough;
                elsewhere the whole group. A mini-batch that has a pass to itself runs as by :meth:`step_over`.
        """
        others = "a loss scaler" if self._scaling.is_on else None if self._share.is_alone else "other processes"
        if others is not None:
            raise NotImplementedError(f"step_at_once() does not work with {others}; use step_over() or backward()")
        most, large = self._most_samples(samples_per_pass)
        batches = list(self._next_of(group, "step_at_once()"))
        self._check_ended(len(batches))
        try:
            for joined, sizes in join_batches(batches, most, large):
                if len(sizes) > 1:
                    self._collect_joined(partial(losses_of, joined), sizes)
                else:
                    losses = losses_of(joined)
                    check_losses(losses, sizes[0], 1)
                    self.backward(losses.mean())
        except BaseException:
            self.reset()
            raise
        with self._without_autocast():
            return self.fill()

    def _collect_joined(self, run: Callable[[], Tensor], sizes: Sequence[int]) -> None:
        with emptied_gradients(self._parameters):
            losses, collected = run_in_one_pass(self._parameters, sizes, run)
        with self._without_autocast():
            for loss, gradients in zip(losses, collected, strict=True):
                check_gradients(gradients)
                self._add_any(gradients)
                self._losses.append(loss)

    def _without_autocast(self) -> torch.autocast:
        """Keep a caller's autocast from narrowing products of gradients that are not multiplied out."""
        return torch.autocast(self._device().type, enabled=False)

    def _most_samples(self, samples_per_pass: int | None) -> tuple[float, float]:
        """Return how many may share a pass, and how many are a pass of their own."""
        if samples_per_pass is None:
            on_cpu = self._device().type == "cpu"
            return (_SAMPLES_PER_PASS_ON_CPU, _LARGE_ON_CPU) if on_cpu else (math.inf, math.inf)
        if isinstance(samples_per_pass, bool) or not isinstance(samples_per_pass, Integral) or samples_per_pass < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"samples_per_pass must be a positive whole number or None, got {samples_per_pass!r}")
        return samples_per_pass, math.inf

    def _next_of(self, group: Iterable[Batch], call: str) -> Iterator[Batch]:
        if self._losses:
            raise RuntimeError(
                f"{call} starts a new group, but {self.num_collected} mini-batches are already collected; "
                "call fill() or reset() first"
            )
        # A loader's iterator has a length too, but is meant to be taken from.
        if isinstance(group, Sized) and not isinstance(group, Iterator) and len(group) != self._num_own:
            raise ValueError(
                f"group has {len(group)} mini-batches, expected {self._expected()}; "
                "to take the next ones of a loader, pass iter(loader) and keep it"
            )
        return islice(group, self._num_own)

    def _check_ended(self, num_batches: int) -> None:
        if num_batches < self._num_own:
            raise ValueError(
                f"group ended after {num_batches} mini-batches, expected {self._expected()}; "
                "let the sampler yield whole groups"
            )
