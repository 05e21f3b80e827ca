"""What a user would install instead, each called as its authors document it. All come with the extra ``bench``.

A peer that is not installed, or does not accept a network, raises when it is prepared or in its first update; whoever
measures reports that. Nothing here is part of what this package does for its users.
"""

from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

from deepbilevel_lab.bench.work import Update, Work, optimizer_of, pooled

INSTALL = "pip install 'deepbilevel[bench]'"


def agreement_filtering(work: Work) -> Update:
    """Prepare gradient agreement filtering by its authors' function, which loads the samples and steps itself."""
    package = _installed("gradient_agreement_filtering")
    network = work.network()
    optimizer = optimizer_of(network)
    data = TensorDataset(*pooled(work.batches))
    parts = torch.arange(len(data)).split(work.setting.batch_size)
    subsets = [Subset(data, part.tolist()) for part in parts]
    settings = {
        "wandb": False,
        "verbose": False,
        # Every mini-batch agrees: on made labels the usual 1 may leave out all, and then there is no step to measure.
        "cos_distance_thresh": 2.0,
    }
    return lambda: package.step_GAF(network, optimizer, nn.CrossEntropyLoss(), subsets, **settings)


def sharpness_aware(work: Work) -> Update:
    """Prepare sharpness-aware minimisation: all samples in one batch, in two passes."""
    network = work.network()
    images, labels = pooled(work.batches)
    base: dict[str, Any] = optimizer_of(network).defaults
    settings = {name: base[name] for name in ("lr", "momentum")}
    optimizer = _installed("pytorch_optimizer").SAM(network.parameters(), torch.optim.SGD, **settings)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        return loss

    def update() -> None:
        closure()
        optimizer.step(closure)
        optimizer.zero_grad()

    return update


def learning_to_reweight(work: Work) -> Update:
    """Prepare learning to reweight examples (Ren et al. 2018): the first mini-batch weighs all other samples."""
    higher = _installed("higher")
    network = work.network()
    optimizer = optimizer_of(network)
    validation_images, validation_labels = work.batches[0]
    images, labels = pooled(work.batches[1:])

    def update() -> None:
        with higher.innerloop_ctx(network, optimizer) as (inner, inner_optimizer):
            losses = F.cross_entropy(inner(images), labels, reduction="none")
            shares = torch.zeros_like(losses, requires_grad=True)
            inner_optimizer.step((losses * shares).sum())
            validation_loss = F.cross_entropy(inner(validation_images), validation_labels)
            (slopes,) = torch.autograd.grad(validation_loss, shares)
        weights = (-slopes).clamp(min=0)
        weights = weights / weights.sum().clamp(min=1e-12)
        (F.cross_entropy(network(images), labels, reduction="none") * weights).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def jacobian_descent(work: Work) -> Update:
    """Prepare Jacobian descent: the k losses differentiated together, their conflicts resolved by UPGrad."""
    autojac = _installed("torchjd.autojac")
    aggregator = _installed("torchjd.aggregation").UPGrad()
    network = work.network()
    optimizer = optimizer_of(network)

    def update() -> None:
        losses = [F.cross_entropy(network(images), labels) for images, labels in work.batches]
        # Of its options those that are fastest on a CPU.
        autojac.backward(losses, parallel_chunk_size=1)
        autojac.jac_to_grad(network.parameters(), aggregator, optimize_gramian_computation=True)
        optimizer.step()
        optimizer.zero_grad()

    return update


def gramian_descent(work: Work) -> Update:
    """Prepare the same without a Jacobian: inner products of all samples' gradients, then of the k mini-batches'."""
    engine_of = _installed("torchjd.autogram").Engine
    weighting = _installed("torchjd.aggregation").UPGradWeighting()
    network = work.network()
    optimizer = optimizer_of(network)
    engine = engine_of(network, batch_dim=0)
    images, labels = pooled(work.batches)
    num_batches, batch_size = work.num_batches, work.setting.batch_size

    def update() -> None:
        losses = F.cross_entropy(network(images), labels, reduction="none")
        gramian = engine.compute_gramian(losses)
        of_batches = gramian.reshape(num_batches, batch_size, num_batches, batch_size).mean(dim=(1, 3))
        losses.reshape(num_batches, batch_size).mean(dim=1).backward(weighting(of_batches))
        optimizer.step()
        optimizer.zero_grad()

    return update


def _installed(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error.name} is not installed; run: {INSTALL}", name=error.name) from error
