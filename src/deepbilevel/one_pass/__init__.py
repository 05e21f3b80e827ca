"""Whole groups in few passes over many mini-batches, about as fast as plain training with all samples in one batch.

Rules and ``gradients.py`` know nothing of it: the gradients of several mini-batches are handed to the same step, one
after another. ``passes.py`` takes a pass apart, ``joined_batches.py`` makes one of several mini-batches.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from deepbilevel.checks import check_count, check_gradients
from deepbilevel.gradients import AnyGradients
from deepbilevel.one_pass.checks import check_losses, check_one_process
from deepbilevel.one_pass.joined_batches import join_batches
from deepbilevel.one_pass.outer_products import OuterProducts
from deepbilevel.one_pass.passes import run_in_one_pass
from deepbilevel.parameters import emptied_gradients
from deepbilevel.step import GroupStep

Batch = TypeVar("Batch")
# More are not faster there and need more memory; nor is joining mini-batches that are large (docs/performance.md).
_SAMPLES_PER_PASS_ON_CPU, _LARGE_ON_CPU = 128, 64


def step_at_once(
    step: GroupStep[Any],
    group: Iterable[Batch],
    losses_of: Callable[[Batch], Tensor],
    *,
    samples_per_pass: int | None = None,
) -> Any:
    """Run a whole group in few forward and backward passes; the result is that of ``step_over``.

    About as fast as plain training with all samples in one batch, where small mini-batches by themselves are not.
    In exchange it holds the gradients of convolutions for every mini-batch of a pass. Parameters may be used by
    torch's linear layers, convolutions, embeddings and normalisations, as they are; other uses are refused, and so
    are hooks on parameters, a scaler and several processes. What follows is not checked:

    - In the network, samples must be independent of each other, except in BatchNorm, which normalises each mini-batch
      by itself. In every layer they must be the first dimension, in the same order. Position embeddings must be
      looked up for each sample, as in ``positions.expand(len(x), -1)``.
    - The loss of a mini-batch is the mean over its samples. A loss that divides by something else, such as the sum
      of class weights, must be computed for each mini-batch. Dropout is drawn for every sample.
    - BatchNorm counts passes, so ``momentum=None`` averages wrongly. A BatchNorm that is used twice in a pass updates
      its running statistics in another order. Under activation checkpointing it needs trainable parameters.

    >>> from deepbilevel import Bilevel
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> bilevel = Bilevel(model, num_batches=3)
    >>> group = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
    >>> bilevel.step_at_once(group, lambda x: model(x).squeeze(1)).weights
    tensor([1., 0.])

    Args:
        step: collects the gradients.
        group: the k mini-batches, validation first, of tensors or of tuples, lists or dictionaries of them; or an
            iterator, of which the next ones are taken.
        losses_of: runs the forward pass and returns one loss per sample, or one per mini-batch, in their order. It
            gets the mini-batches of a pass joined to one, at most k of them.
        samples_per_pass: how many samples a pass may have; each pass has at least one mini-batch. ``None`` is 128 on a
            CPU, where larger passes are not faster and mini-batches of 64 stay single, and elsewhere the whole group. A
            mini-batch that has a pass to itself runs as in ``step_over``.
    """
    check_one_process(step)
    most, large = _most_samples(step.device, samples_per_pass)
    batches = list(step.next_batches(group, "step_at_once()"))
    try:
        for joined, sizes in join_batches(batches, most, large):
            if len(sizes) > 1:
                _collect_joined(step, partial(losses_of, joined), sizes)
            else:
                losses = losses_of(joined)
                check_losses(losses, sizes[0], 1)
                step.backward(losses.mean())
    except BaseException:
        step.reset()
        raise
    with _without_autocast(step.device):
        return step.fill()


def _collect_joined(step: GroupStep[Any], run: Callable[[], Tensor], sizes: Sequence[int]) -> None:
    with emptied_gradients(step.parameters):
        losses, collected = run_in_one_pass(step.parameters, sizes, run)
    with _without_autocast(step.device):
        for loss, gradients in zip(losses, collected, strict=True):
            check_gradients(gradients)
            if not step.rule.takes_products:
                gradients = _multiplied_out(gradients)
            step.collect(gradients, loss)


def _multiplied_out(gradients: AnyGradients) -> AnyGradients:
    return {p: each.dense() if isinstance(each, OuterProducts) else each for p, each in gradients.items()}


def _without_autocast(device: torch.device) -> torch.autocast:
    """Keep a caller's autocast from narrowing products of gradients that are not multiplied out."""
    return torch.autocast(device.type, enabled=False)


def _most_samples(device: torch.device, samples_per_pass: int | None) -> tuple[float, float]:
    """Return how many may share a pass, and how many are a pass of their own."""
    if samples_per_pass is None:
        return (_SAMPLES_PER_PASS_ON_CPU, _LARGE_ON_CPU) if device.type == "cpu" else (math.inf, math.inf)
    remedy = "None chooses by the device"
    return check_count("samples_per_pass", samples_per_pass, 1, remedy=remedy), math.inf
