"""What tests run in several processes, and once more in one: the same code, on a share of the same groups."""

from contextlib import nullcontext
from dataclasses import fields
from typing import Any, Literal

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from deepbilevel.distributed import share
from tests.contracts.loop import STEPS
from tests.models import NETWORKS, images

NAN = float("nan")


class Branching(nn.Module):
    """Uses one of two heads, by the first number's sign, and a third never."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.unused = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) if x[0, 0] < 0 else self.right(x)


class Scalar(nn.Module):
    """Has a parameter without dimensions and one without numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.none = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.zeros(0, 4))
        self.head = nn.Linear(192, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * self.head(x.flatten(1)) + self.none.sum(0)


class Averaging(nn.Module):
    """BatchNorm whose statistics are plain means (``momentum=None``), one that is frozen, and one nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.means, self.frozen = nn.BatchNorm2d(3, momentum=None), nn.BatchNorm2d(3, momentum=None)
        self.unused = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.frozen.eval()
        return self.head(self.frozen(self.means(x)).relu().mean(dim=(2, 3)))


MODELS = {**NETWORKS, "branching": Branching, "averaging": Averaging, "scalar": Scalar}


def make_model(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().to(dtype)


def place() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def group(k: int, seed: int, network: str, dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if network == "branching":
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(k, 1, 2, generator=generator, dtype=torch.float64)
        return [(each.to(dtype), torch.tensor([0])) for each in x]
    return [(x.to(dtype), y) for x, y in images(k, seed=seed)]


def train(
    rule: str,
    *,
    k: int,
    network: str = "BatchNorm-like",
    steps: int = 3,
    dtype: torch.dtype = torch.float64,
    bad: tuple[int, ...] = (),
    shared_dropout: bool = False,
    wrapped: bool = False,
    channels_last: bool = False,
    spread: Literal["batches", "nothing"] = "batches",
    scaled: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train a few steps of SGD, on this process's share of every group, and return everything there is to compare."""
    rank, size = place() if spread == "batches" else (0, 1)
    model = make_model(network, dtype)
    if channels_last:
        model = model.to(memory_format=torch.channels_last)
    running = DistributedDataParallel(model) if wrapped and dist.is_initialized() else model
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
    step = share(STEPS[rule](running, num_batches=k, scaler=scaler, **settings), spread)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    # Masks that are shared come from the first process, whatever the others' random numbers are.
    torch.manual_seed(1 + rank if shared_dropout else 1)
    gradients, reports = [], []
    for seed in range(steps):
        for i, (x, y) in list(enumerate(group(k, seed, network, dtype)))[rank::size]:
            assert not step.full
            with step.shared_dropout() if shared_dropout else nullcontext():
                loss = F.cross_entropy(running(x), y)
            if seed == 1 and i in bad:  # in one layer, which discards the others too
                loss = loss + NAN * next(reversed(list(model.parameters()))).sum()
            step.backward(loss)
        assert step.full
        report = step.fill()
        gradients.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        reports.append({field.name: getattr(report, field.name) for field in fields(report)})
        reports[-1]["skipped"], reports[-1]["applied"] = report.skipped, report.applied
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {
        "gradients": gradients,
        "reports": reports,
        "model": dict(model.state_dict()),
        "state": step.state_dict(),
        "scale": scaler.get_scale(),
        "next random number": torch.rand(()) if "random" in rule else None,
    }
