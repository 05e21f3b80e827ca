"""The passes of a group as a spec wants them: each mini-batch by itself or several joined.

Precision, random numbers and the loss belong to a pass; what becomes of its gradients is the method's.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from deepbilevel.step import GroupStep
from deepbilevel_lab.losses.objective import Objective
from deepbilevel_lab.losses.pure import PureLossSpec, multi_label_loss
from deepbilevel_lab.training.auditing import RunAudit
from deepbilevel_lab.training.feeding import Batch
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.streams import seeded_apart

_Joinable = dict[str, Tensor]  # what a loss needs of mini-batches, in a form in which several can be joined to one


def make_step(
    spec: RunSpec,
    model: nn.Module,
    objective: Objective | None,
    method: GroupStep[Any],
    autocast: torch.autocast | None,
    audit: RunAudit | None = None,
) -> Callable[[list[Batch]], Any]:
    """Return what makes all passes of a group, fills ``.grad`` by the method and returns its report."""
    if spec.passes == "joined" and spec.method.splits:
        losses_of = _make_joined_losses(spec, model, autocast, audit)
        return lambda batches: method.step_at_once([_joinable(batch) for batch in batches], losses_of)
    loss_of = _make_loss(spec, model, objective, method, autocast, audit)
    return lambda batches: method.step_over(batches, loss_of)


def _make_loss(
    spec: RunSpec,
    model: nn.Module,
    objective: Objective | None,
    method: GroupStep[Any],
    autocast: torch.autocast | None,
    audit: RunAudit | None,
) -> Callable[[Batch], Tensor]:
    shares_dropout = spec.shared_dropout
    loss_of_scores = _loss_of_scores(spec)

    def random_numbers(batch: Batch) -> AbstractContextManager[None]:
        if shares_dropout:
            return method.shared_dropout()
        return nullcontext() if batch.seed is None else seeded_apart(batch.seed, batch.images.device)

    def observed(batch: Batch) -> AbstractContextManager[None]:
        return nullcontext() if audit is None else audit.watching(model, batch.indices, batch.images)

    def loss_of(batch: Batch) -> Tensor:
        with random_numbers(batch), observed(batch):
            if objective is not None:  # it lowers the precision itself, of networks and of nothing else
                return objective(model, batch.images, batch.labels, batch.indices.to(batch.images.device))
            with autocast or nullcontext():
                return loss_of_scores(model(batch.images), batch.labels, batch.difficult)

    return loss_of


def _make_joined_losses(
    spec: RunSpec, model: nn.Module, autocast: torch.autocast | None, audit: RunAudit | None
) -> Callable[[_Joinable], Tensor]:
    loss_of_scores = _loss_of_scores(spec)
    size = spec.group.batch_size

    def losses_of(joined: _Joinable) -> Tensor:
        with autocast or nullcontext():
            all_scores = model(joined["images"])
            if audit is not None:
                audit.observe(joined["indices"], all_scores)
            scores = all_scores.split(size)
            labels = joined["labels"].split(size)
            difficult = joined["difficult"].split(size) if "difficult" in joined else [None] * len(labels)
            return torch.stack([loss_of_scores(*each) for each in zip(scores, labels, difficult, strict=True)])

    return losses_of


def _joinable(batch: Batch) -> _Joinable:
    joined = {"indices": batch.indices, "images": batch.images, "labels": batch.labels}
    return joined if batch.difficult is None else {**joined, "difficult": batch.difficult}


def _loss_of_scores(spec: RunSpec) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    multi_label = spec.data.entry.multi_label
    loss = cast(PureLossSpec, spec.loss)  # of all others an objective is made

    def loss_of_scores(scores: Tensor, labels: Tensor, difficult: Tensor | None) -> Tensor:
        return multi_label_loss(scores, labels, difficult) if multi_label else loss(scores, labels)

    return loss_of_scores
