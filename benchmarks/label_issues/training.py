"""The loop that all share, as a user of the library would write it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from deepbilevel import CrossValidated, MatchedGroups
from deepbilevel.audit import LabelAudit
from deepbilevel_lab.networks import build_network

Way = Literal["sgd", "elr", "cross-validated"]
"""Plain SGD, early-learning regularisation (Liu et al. 2020), or the cross-validated gradient."""
NUM_BATCHES, BATCH_SIZE = 8, 16  # of a group; plain SGD steps once for as many images
_ELR_STRENGTH, _ELR_MEMORY, _LEAST = 3.0, 0.7, 1e-4


@dataclass(frozen=True)
class Task:
    """Images as the network sees them, and how long and how fast it is trained."""

    network: str
    images: Tensor
    test_images: Tensor
    test_labels: Tensor
    num_classes: int
    lr: float
    epochs: int


@dataclass(frozen=True)
class Trained:
    """A trained network and what was observed on the way.

    Attributes:
        losses: of every sample, at the visit of the last epoch; NaN where it had none.
    """

    network: nn.Module
    audit: LabelAudit
    losses: Tensor


def fit(task: Task, labels: Tensor, *, seed: int, way: Way = "sgd", rows: Tensor | None = None) -> Trained:
    """Train on the labels of all images, or of some ``rows``, with a cosine schedule."""
    torch.manual_seed(seed)
    network = build_network(task.network, num_classes=task.num_classes).to(memory_format=torch.channels_last)
    images = task.images if rows is None else task.images[rows]
    labels = labels if rows is None else labels[rows]
    optimizer = torch.optim.SGD(network.parameters(), lr=task.lr, momentum=0.9)
    groups = _groups(labels, seed, matched=way == "cross-validated")
    step = CrossValidated(network, num_batches=NUM_BATCHES) if way == "cross-validated" else None
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.epochs * groups.num_groups)
    audit, losses = LabelAudit(labels, num_classes=task.num_classes), torch.full((len(labels),), torch.nan)
    beliefs = torch.zeros(len(labels), task.num_classes)
    with _features(network) as features:
        for _ in range(task.epochs):
            for indices in groups.batches():
                scores, given = network(images[indices]), labels[indices]
                each = cross_entropy(scores, given, reduction="none")
                losses[indices] = each.detach()
                audit.observe(indices, scores, features=features.latest)
                loss = each.mean()
                if way == "elr":
                    loss = loss + _early_learning(scores, beliefs, indices)
                if step is not None:
                    step.backward(loss)
                    if not step.full:
                        continue
                    step.fill()
                else:
                    optimizer.zero_grad()
                    loss.backward()
                optimizer.step()
                schedule.step()
    return Trained(network, audit, losses)


@torch.no_grad()
def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """Return what the network predicts."""
    network.eval()
    return torch.cat([network(chunk).softmax(dim=1) for chunk in images.split(500)])


def accuracy(network: nn.Module, task: Task) -> float:
    """Return the share of test images that are classified right, in percent."""
    right = probabilities(network, task.test_images).argmax(dim=1) == task.test_labels
    return 100 * right.double().mean().item()


def _early_learning(scores: Tensor, beliefs: Tensor, indices: Tensor) -> Tensor:
    p = scores.softmax(dim=1).clamp(_LEAST, 1 - _LEAST)
    now = p.detach() / p.detach().sum(dim=1, keepdim=True)
    beliefs[indices] = _ELR_MEMORY * beliefs[indices] + (1 - _ELR_MEMORY) * now
    return _ELR_STRENGTH * torch.log1p(-(beliefs[indices] * p).sum(dim=1)).mean()


@dataclass(frozen=True)
class _Groups:
    batches: Callable[[], Iterator[Tensor]]
    num_groups: int


def _groups(labels: Tensor, seed: int, *, matched: bool) -> _Groups:
    """Return the batches of an epoch, group by group where they are matched, and how often the optimizer steps."""
    if matched:
        sampler = MatchedGroups(labels, num_batches=NUM_BATCHES, batch_size=BATCH_SIZE, seed=seed, on_rare="repeat")
        return _Groups(lambda: map(torch.tensor, sampler), len(sampler) // NUM_BATCHES)
    generator, size = torch.Generator().manual_seed(seed), NUM_BATCHES * BATCH_SIZE
    return _Groups(lambda: iter(torch.randperm(len(labels), generator=generator).split(size)), -(-len(labels) // size))


class _features:  # noqa: N801 (a context manager)
    """Keeps what the last layer was given, for the score ``agreement``."""

    def __init__(self, network: nn.Module) -> None:
        last = [layer for layer in network.modules() if isinstance(layer, nn.Linear)][-1]
        self.latest: Tensor | None = None
        self._hook = last.register_forward_pre_hook(self._keep)

    def _keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.latest = inputs[0].detach()

    def __enter__(self) -> "_features":
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()
