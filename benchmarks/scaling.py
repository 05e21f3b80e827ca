"""Throughput of one and two processes, bytes per step, and what that says about many GPUs: docs/scaling.md.

Run it on an otherwise idle machine: ``python -m benchmarks.scaling``. Everything takes turns in the same two processes,
one thread each: first process alone, then both, round after round, and ratios are taken within rounds.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal

import torch
from torch import distributed as dist
from torch import multiprocessing, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.cost.work import Setting, Work, optimizer_of, pooled
from deepbilevel import Bilevel, CrossValidated
from deepbilevel.distributed import share
from deepbilevel_lab.training.memory import keep_freed_memory

K, BATCH_SIZE = 8, 16
STEPS = 4  # of a turn
ALONE, SHARED, GROUP_EACH = (
    "bilevel, one process",
    "bilevel, two processes share a group",
    "bilevel, a group per process",
)

Step = Callable[[], None]


def main() -> None:
    """Measure, then check the model against what was measured, then let it look ahead."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--network", default="cifarnet")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.spawn(  # pyright: ignore[reportPrivateImportUsage]
            work_in_process, args=(2, Path(folder), arguments.network, arguments.rounds), nprocs=2
        )
        assert context is None
        measured = torch.load(Path(folder) / "measured.pt", weights_only=True)
    report(**measured)
    for images_per_second in (400.0, 2500.0):
        look_ahead(Cluster(images_per_second))


def work_in_process(rank: int, size: int, folder: Path, network: str, rounds: int) -> None:
    """Take all turns of one process; the first one writes down the seconds of each."""
    torch.set_num_threads(1)
    keep_freed_memory()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=size)
    turns = make_turns(Setting(network, K, BATCH_SIZE), rank, size)
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    traffic: dict[str, Counter[str]] = {}
    for number in range(rounds + 1):  # the first warms up
        for name, (ranks, step) in turns.items():
            dist.barrier()
            start = time.perf_counter()
            if rank in ranks:
                for _ in range(STEPS):
                    step()
            dist.barrier()
            if number:
                seconds[name].append((time.perf_counter() - start) / STEPS)
    for name, (ranks, step) in turns.items():  # once more, for counting takes time
        with Messages() as messages:
            if rank in ranks:
                step()
        traffic[name] = messages.sent
    transfers = {kind: time_transfer(kind, model_bytes(network) // 4) for kind in ("broadcast", "all_reduce")}
    if rank == 0:
        parts = {"seconds": seconds, "traffic": {name: dict(each) for name, each in traffic.items()}}
        torch.save({**parts, "transfers": transfers, "bytes_of_model": model_bytes(network)}, folder / "measured.pt")
    dist.destroy_process_group()


def make_turns(setting: Setting, rank: int, size: int) -> dict[str, tuple[range, Step]]:
    """Return who takes part in each turn, and what one step is; all steps are over the same 128 images but one."""
    work = Work.of(setting)
    own = work.batches[rank::size]
    both, first = range(size), range(1)
    return {
        ALONE: (first, ours(work, work.batches, Bilevel, "nothing")),
        SHARED: (both, ours(work, own, Bilevel, "batches")),
        GROUP_EACH: (both, ours(work, work.batches, Bilevel, "groups")),
        "cross-validated, one process": (first, ours(work, work.batches, CrossValidated, "nothing")),
        "cross-validated, two processes share a group": (both, ours(work, own, CrossValidated, "batches")),
        "SGD in one batch, one process": (first, plain(work, work.batches, wrapped=False)),
        "SGD in one batch, DDP over two processes": (both, plain(work, own, wrapped=True)),
    }


def ours(work: Work, batches: list, make: type, spread: Literal["batches", "groups", "nothing"]) -> Step:
    """Return a step of one of our rules."""
    network = work.network()
    optimizer = optimizer_of(network)
    group = share(make(network, num_batches=K), spread)

    def step() -> None:
        for images, labels in batches:
            group.backward(F.cross_entropy(network(images), labels))
        group.fill()
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain(work: Work, batches: list, *, wrapped: bool) -> Step:
    """Return a step of plain SGD, averaged over processes by torch's own wrapper if there are several."""
    network: nn.Module = work.network()
    if wrapped:
        network = nn.parallel.DistributedDataParallel(network)
        network.register_comm_hook(None, averaged)
    optimizer = optimizer_of(network)
    images, labels = pooled(batches)

    def step() -> None:
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def averaged(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Do what the wrapper does by itself, through the dispatcher, where it is counted."""
    flat = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(flat, async_op=True).get_future().then(lambda done: done.value()[0])


class Messages(TorchDispatchMode):
    """Counts the bytes of the tensors that collectives are given."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.sent[func.name()] += sum(tensor.numel() * tensor.element_size() for tensor in args[0])
        return func(*args, **(kwargs or {}))


def model_bytes(network: str) -> int:
    """Return the bytes of all parameters."""
    return 4 * Work.of(Setting(network, K, BATCH_SIZE)).num_parameters


def time_transfer(kind: str, numbers: int) -> float:
    """Return the median seconds of one message."""
    flat = torch.zeros(numbers)
    seconds: list[float] = []
    for _ in range(15):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(flat) if kind == "all_reduce" else dist.broadcast(flat, 0)
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:])


def report(
    seconds: dict[str, list[float]],
    traffic: dict[str, dict[str, int]],
    transfers: dict[str, float],
    bytes_of_model: int,
) -> None:
    """Print what was measured, and what the model makes of it."""
    print(f"one thread per process, groups of {K} x {BATCH_SIZE}")
    print(f"{'':46s} images/s   to one process (middle half)   models sent per step")
    for name, times in seconds.items():
        images = K * BATCH_SIZE * (2 if name == GROUP_EACH else 1)
        base = seconds[name.split(",")[0] + ", one process"]
        ratios = [images / mine / (K * BATCH_SIZE / other) for mine, other in zip(times, base, strict=True)]
        low, _, high = quantiles(ratios, n=4)
        sent = sum(traffic[name].values()) / bytes_of_model
        print(f"{name:46s} {images / median(times):8.0f}   {median(ratios):5.2f} ({low:.2f}-{high:.2f})   {sent:18.2f}")
    for kind, each in transfers.items():
        print(f"{kind} of the model ({bytes_of_model / 1e6:.1f} MB): {1e3 * each:.1f} ms")
    check_model(seconds, transfers)


def check_model(seconds: dict[str, list[float]], transfers: dict[str, float]) -> None:
    """Predict the shared group from everything else that was measured, and print both."""
    passes, apart, shared = (median(seconds[name]) for name in (ALONE, GROUP_EACH, SHARED))
    slower = (apart - transfers["all_reduce"]) / passes  # two busy cores slow each other down
    predicted = slower * passes / 2 + transfers["broadcast"] + transfers["all_reduce"]
    print(f"two busy processes are each {slower:.2f} times slower than one alone, messages aside")
    print(f"model: two processes share a group: {passes / predicted:.2f} times one; measured {passes / shared:.2f}")


@dataclass(frozen=True)
class Cluster:
    """What the model takes for granted; numbers to be replaced by one's own.

    Attributes:
        images_per_second: of one GPU in training.
        model_bytes: sent in float32.
        bandwidth: bytes a second between two GPUs, in a node and between nodes.
        latency: seconds of one hop.
        node: how many GPUs share the fast connection.
    """

    images_per_second: float
    model_bytes: float = 4 * 25.6e6
    bandwidth: tuple[float, float] = (200e9, 20e9)
    latency: float = 10e-6
    node: int = 8

    def all_reduce(self, size: int) -> float:
        """Return the seconds of a ring."""
        return self._slowest(size, 2 * (size - 1) / size) + 2 * log2(max(size, 2)) * self.latency

    def broadcast(self, size: int) -> float:
        """Return the seconds of a pipelined tree."""
        return self._slowest(size, 1.0) + log2(max(size, 2)) * self.latency

    def _slowest(self, size: int, models: float) -> float:
        return 0.0 if size == 1 else models * self.model_bytes / self.bandwidth[size > self.node]


def look_ahead(cluster: Cluster) -> None:
    """Print images a second for ResNet-50, groups of 8 x 32, on more and more GPUs."""
    k, batch_size = 8, 32
    one_pass = batch_size / cluster.images_per_second
    print(f"\nResNet-50, groups of {k} x {batch_size}: {cluster}")
    titles = ("GPUs", "share a group", "a group each", "DDP, 256 images each", "steps in an epoch of ImageNet")
    print("".join(f"{title:>{width}s}" for title, width in zip(titles, (6, 22, 22, 22, 32), strict=True)))
    for size in (1, 2, 4, 8, 16, 64, 256, 1024):
        shared = None
        if size <= k:
            exchange = cluster.broadcast(size) + cluster.all_reduce(size) if size > 1 else 0.0
            shared = k * batch_size / (ceil(k / size) * one_pass + exchange)
        each = size * k * batch_size / (k * one_pass + cluster.all_reduce(size))
        backward = 2 / 3 * k * one_pass  # during which the wrapper sends what is ready
        ddp = size * k * batch_size / (k * one_pass + max(0.0, cluster.all_reduce(size) - backward))
        ideal = size * cluster.images_per_second
        cells = [f"{rate:.0f} ({rate / ideal:.0%})" if rate else "more GPUs than k" for rate in (shared, each, ddp)]
        steps = (
            f"{1_281_167 // (k * batch_size)}"
            if size == 1
            else f"{1_281_167 // (size * k * batch_size)} (a group each)"
        )
        print(f"{size:6d}" + "".join(f"{cell:>22s}" for cell in cells) + f"{steps:>32s}")


if __name__ == "__main__":
    main()
