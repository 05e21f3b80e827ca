"""Who is compared: plain loops as a user writes them, our rules, and what one would install instead.

A contender turns work into an update. Plain loops know nothing of this package: they are what its cost is measured by.
A peer is called as its authors document it; one that is not installed, or does not accept a network, raises when it is
prepared or in its first update, and whoever measures reports that. All peers come with the extra ``bench``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Subset, TensorDataset

from benchmarks.cost.work import Batch, Update, Work, optimizer_of, pooled
from deepbilevel import Bilevel, CrossValidated, GroupStep
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.k_fold import KFoldBilevel

INSTALL = "pip install -e '.[bench]'"
Kind = Literal["plain", "ours", "peer"]
SGD = "SGD, one batch"
ACCUMULATION = "gradient accumulation"
BILEVEL = "bilevel"
AT_ONCE = "bilevel, at once"
FILTERING = "gradient-agreement-filtering"
OWN_RULE = "cross-validated"
OWN_AVERAGED = "cross-validated, averaged"
OWN_AT_ONCE = "cross-validated, averaged, at once"
_AVERAGED = {"strength": 1 / 8, "momentum": 0.9}


@dataclass(frozen=True)
class Contender:
    """A way to make an update of k mini-batches.

    Attributes:
        name: in tables and records.
        kind: a plain loop, ours, or a peer's.
        prepare: makes the update; raises where it cannot, as a package that is not installed does.
    """

    name: str
    kind: Kind
    prepare: Callable[[Work], Update]


def sgd(work: Work) -> Update:
    """Use all samples of the group as one batch."""
    network = work.network()
    optimizer = optimizer_of(network)
    images, labels = pooled(work.batches)

    def update() -> None:
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def sgd_on_one(work: Work) -> Update:
    """Use the first mini-batch alone: not the same work, but the least memory that any loop needs."""
    return sgd(replace(work, batches=work.batches[:1]))


def accumulation(work: Work) -> Update:
    """Add up gradients in ``.grad``, as a loop over a large batch in parts does."""
    network = work.network()
    optimizer = optimizer_of(network)

    def update() -> None:
        for images, labels in work.batches:
            (F.cross_entropy(network(images), labels) / len(work.batches)).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def ours(make: Callable[..., GroupStep[Any]], **settings: Any) -> Callable[[Work], Update]:
    """Return what prepares an update by one of our rules."""

    def prepare(work: Work) -> Update:
        network = work.network()
        optimizer = optimizer_of(network)
        step = make(network, num_batches=work.num_batches, **settings)

        def update() -> None:
            for images, labels in work.batches:
                step.backward(F.cross_entropy(network(images), labels))
            step.fill()
            optimizer.step()
            optimizer.zero_grad()

        return update

    return prepare


def ours_at_once(make: Callable[..., GroupStep[Any]], **settings: Any) -> Callable[[Work], Update]:
    """Return what prepares an update by one of our rules, many mini-batches in one pass."""

    def prepare(work: Work) -> Update:
        network = work.network()
        optimizer = optimizer_of(network)
        step = make(network, num_batches=work.num_batches, **settings)

        def losses_of(batch: Batch) -> Tensor:
            images, labels = batch
            return F.cross_entropy(network(images), labels, reduction="none")

        def update() -> None:
            step.step_at_once(work.batches, losses_of)
            optimizer.step()
            optimizer.zero_grad()

        return update

    return prepare


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


PLAIN = (Contender(SGD, "plain", sgd), Contender(ACCUMULATION, "plain", accumulation))
OURS = (
    Contender(BILEVEL, "ours", ours(Bilevel)),
    Contender(AT_ONCE, "ours", ours_at_once(Bilevel)),
    Contender("bilevel, exact", "ours", ours(GroupStep, rule=ExactBilevel())),
    Contender("bilevel, per layer", "ours", ours(Bilevel, per_layer=True)),
    Contender("bilevel, k-fold", "ours", ours(GroupStep, rule=KFoldBilevel())),
    Contender(OWN_RULE, "ours", ours(CrossValidated)),
    Contender(OWN_AVERAGED, "ours", ours(CrossValidated, **_AVERAGED)),
    Contender(OWN_AT_ONCE, "ours", ours_at_once(CrossValidated, **_AVERAGED)),
)
PEERS = (
    Contender(FILTERING, "peer", agreement_filtering),
    Contender("SAM, pytorch-optimizer", "peer", sharpness_aware),
    Contender("learning to reweight, higher", "peer", learning_to_reweight),
    Contender("UPGrad, torchjd.autojac", "peer", jacobian_descent),
    Contender("UPGrad, torchjd.autogram", "peer", gramian_descent),
)
EVERYBODY = PLAIN + OURS + PEERS
CLAIMED = (SGD, ACCUMULATION, BILEVEL, AT_ONCE)
"""Whom the claims are about."""
NEAREST = (FILTERING,)
"""Peers so near that one round does not tell who is faster."""
CLOSER = (*CLAIMED, *NEAREST, OWN_RULE, OWN_AVERAGED, OWN_AT_ONCE)
"""Whom a closer look is about."""
