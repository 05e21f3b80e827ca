"""What is compared with what: plain loops as a user writes them, our rules, and what one would install instead.

A contender turns work into an update. Plain loops know nothing of this package: they are what its cost is measured by.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor
from torch.nn import functional as F

from deepbilevel import Bilevel, CrossValidated, GroupStep
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel.rules.k_fold import KFoldBilevel
from deepbilevel_lab.bench import peers
from deepbilevel_lab.bench.work import Batch, Update, Work, optimizer_of, pooled

Kind = Literal["plain", "ours", "peer"]
SGD = "SGD, one batch"
ACCUMULATION = "gradient accumulation"
BILEVEL = "bilevel"
AT_ONCE = "bilevel, at once"
FILTERING = "gradient-agreement-filtering"


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


def ours_at_once(rule: Callable[..., GroupStep[Any]]) -> Callable[[Work], Update]:
    """Return what prepares an update by one of our rules, many mini-batches in one pass."""

    def prepare(work: Work) -> Update:
        network = work.network()
        optimizer = optimizer_of(network)
        step = rule(network, num_batches=work.num_batches)

        def losses_of(batch: Batch) -> Tensor:
            images, labels = batch
            return F.cross_entropy(network(images), labels, reduction="none")

        def update() -> None:
            step.step_at_once(work.batches, losses_of)
            optimizer.step()
            optimizer.zero_grad()

        return update

    return prepare


PLAIN = (Contender(SGD, "plain", sgd), Contender(ACCUMULATION, "plain", accumulation))
OURS = (
    Contender(BILEVEL, "ours", ours(Bilevel)),
    Contender(AT_ONCE, "ours", ours_at_once(Bilevel)),
    Contender("bilevel, exact", "ours", ours(GroupStep, rule=ExactBilevel())),
    Contender("bilevel, per layer", "ours", ours(Bilevel, per_layer=True)),
    Contender("bilevel, k-fold", "ours", ours(GroupStep, rule=KFoldBilevel())),
    Contender("cross-validated", "ours", ours(CrossValidated)),
)
PEERS = (
    Contender(FILTERING, "peer", peers.agreement_filtering),
    Contender("SAM, pytorch-optimizer", "peer", peers.sharpness_aware),
    Contender("learning to reweight, higher", "peer", peers.learning_to_reweight),
    Contender("UPGrad, torchjd.autojac", "peer", peers.jacobian_descent),
    Contender("UPGrad, torchjd.autogram", "peer", peers.gramian_descent),
)
EVERYBODY = PLAIN + OURS + PEERS
CLAIMED = (SGD, ACCUMULATION, BILEVEL, AT_ONCE)
"""Whom the claims are about."""
NEAREST = (FILTERING,)
"""Peers so near that one round does not tell who is faster."""
