"""Every process with a group of its own, and what one process makes of the same groups."""

from dataclasses import fields
from typing import Any, Literal

import torch
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from deepbilevel.distributed import share
from tests.contracts.loop import STEPS
from tests.distributed.cases import NAN, group, make_model, place


class Trainer:
    """One process's model, step and optimizer."""

    def __init__(
        self,
        rule: str,
        rank: int,
        size: int,
        *,
        k: int = 4,
        network: str = "BatchNorm-like",
        dtype: torch.dtype = torch.float64,
        bad: tuple[int, ...] = (),
        bad_images: bool = False,
        bad_rank: int = 1,
        wrapped: bool = False,
        scaled: bool = False,
        spread: Literal["groups", "nothing"] = "nothing",
        **settings: Any,
    ) -> None:
        self.rank, self.size, self.k, self.network, self.dtype = rank, size, k, network, dtype
        self.bad, self.bad_images, self.bad_rank = bad, bad_images, bad_rank
        self.model = make_model(network, dtype)
        self.running = DistributedDataParallel(self.model) if wrapped and dist.is_initialized() else self.model
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
        self.step = share(STEPS[rule](self.running, num_batches=k, scaler=self.scaler, **settings), spread)
        # The step knows the one whose updates it shrinks, if it does.
        self.optimizer = self.step.optimizer or torch.optim.SGD(
            self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3
        )

    def collect(self, number: int) -> dict[str, Any]:
        """Run one group, fill ``.grad`` and return the report."""
        torch.manual_seed(100 * number + self.rank)
        is_bad = number == 1 and self.rank == self.bad_rank
        for i, (x, y) in enumerate(group(self.k, number * self.size + self.rank, self.network, self.dtype)):
            if is_bad and self.bad_images:
                x = x * NAN
            loss = F.cross_entropy(self.running(x), y)
            if is_bad and i in self.bad:
                loss = loss + NAN * next(reversed(list(self.model.parameters()))).sum()
            self.step.backward(loss)
        report = self.step.fill()
        named = {field.name: getattr(report, field.name) for field in fields(report)}
        return named | {"skipped": report.skipped, "applied": report.applied}

    def gradients(self) -> list[torch.Tensor | None]:
        return [None if p.grad is None else p.grad.clone() for p in self.model.parameters()]

    def update(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def result(self, gradients: list[Any], reports: list[Any]) -> dict[str, Any]:
        model = {name: each.clone() for name, each in self.model.state_dict().items()}
        return {"gradients": gradients, "reports": reports, "model": model, "scale": self.scaler.get_scale()}


def train_own_groups(rule: str, steps: int = 3, **settings: Any) -> dict[str, Any]:
    """Train in this process, on a group of its own per step."""
    trainer = Trainer(rule, *place(), spread="groups", **settings)
    gradients, reports = [], []
    for number in range(steps):
        reports.append(trainer.collect(number))
        gradients.append(trainer.gradients())
        trainer.update()
    return trainer.result(gradients, reports)


def train_by_hand(rule: str, size: int, steps: int = 3, **settings: Any) -> list[dict[str, Any]]:
    """Do the same in one process: as many models as processes, and plain means of what they have."""
    trainers = [Trainer(rule, rank, size, **settings) for rank in range(size)]
    gradients, reports = [], [[] for _ in trainers]
    for number in range(steps):
        for trainer, own in zip(trainers, reports, strict=True):
            own.append(trainer.collect(number))
        with torch.no_grad():
            gradients.append(_mean_gradients(trainers))
            _average_statistics(trainers)
            _average_factors(trainers)
        for trainer in trainers:
            trainer.update()
    return [trainer.result(gradients, own) for trainer, own in zip(trainers, reports, strict=True)]


def _mean_gradients(trainers: list[Trainer]) -> list[torch.Tensor | None]:
    means = []
    for parameters in zip(*(trainer.model.parameters() for trainer in trainers), strict=True):
        mean = None
        if any(p.grad is not None for p in parameters):
            mean = sum(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters) / len(parameters)
        for p in parameters:
            p.grad = None if mean is None else mean.clone()
        means.append(mean)
    return means


def _average_statistics(trainers: list[Trainer]) -> None:
    sound = [
        trainer.model for trainer in trainers if all(torch.isfinite(each).all() for each in trainer.model.buffers())
    ]
    means = [
        sum(each) / len(sound) if each[0].is_floating_point() else each[0]
        for each in zip(*(model.buffers() for model in sound), strict=True)
    ]
    for trainer in trainers:
        for buffer, mean in zip(trainer.model.buffers(), means, strict=True):
            buffer.copy_(mean)


def _average_factors(trainers: list[Trainer]) -> None:
    updates = [trainer.step._updates for trainer in trainers]
    if updates[0] is not None:
        means = {p: sum(each.factors[p] for each in updates) / len(updates) for p in updates[0].factors}
        for each in updates:
            each.factors = dict(means)
