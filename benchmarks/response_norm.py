"""How much faster does CifarNet train with our response normalisation than with torch's? One thread, on the CPU.

Steps of the compared networks alternate, so that whatever else the machine does falls on all of them, and processor
time is measured, so that waiting for the processor does not count. A ratio is taken within each round; the table
shows the median over rounds, and between which values the middle half and all of them lie. The last column is what a
normalisation that costs nothing would reach.
"""

import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.networks import cifarnet

ROUNDS = 21
IMAGES_PER_ROUND = 128


def main() -> None:
    """Print one line per batch size."""
    torch.set_num_threads(1)
    print(f"CifarNet, one training step; torch {torch.__version__}, {ROUNDS} rounds, milliseconds of processor time")
    print(f"{'batch':>5}  {'torch':>7} {'ours':>7}  {'ratio':>5}  {'half':<11}  {'all':<11}  limit")
    for batch_size in (128, 16):
        print(compare(batch_size), flush=True)


def compare(batch_size: int) -> str:
    """Time the training steps of three networks that differ in their normalisation, and return a line of the table."""
    steps = {
        "torch": training_step(lambda: nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0), batch_size),
        "ours": training_step(None, batch_size),
        "none": training_step(nn.Identity, batch_size),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    num_steps = IMAGES_PER_ROUND // batch_size
    for number in range(ROUNDS + 1):
        # Whoever comes first finds the caches as the last one left them, so each comes first in turn.
        order = list(steps) if number % 2 else list(reversed(steps))
        for name in order:
            start = time.process_time()
            for _ in range(num_steps):
                steps[name]()
            if number > 0:  # the first round warms up
                seconds[name].append((time.process_time() - start) / num_steps)
    ratios = [slow / fast for slow, fast in zip(seconds["torch"], seconds["ours"], strict=True)]
    limits = [slow / none for slow, none in zip(seconds["torch"], seconds["none"], strict=True)]
    low, _, high = quantiles(ratios, n=4)
    half, everything = f"{low:.2f} - {high:.2f}", f"{min(ratios):.2f} - {max(ratios):.2f}"
    slow, fast = 1e3 * median(seconds["torch"]), 1e3 * median(seconds["ours"])
    return (
        f"{batch_size:>5}  {slow:7.1f} {fast:7.1f}  {median(ratios):5.2f}  {half}  {everything}  {median(limits):5.2f}"
    )


def training_step(make_norm: Callable[[], nn.Module] | None, batch_size: int) -> Callable[[], None]:
    """Return a training step of CifarNet, its normalisation replaced by what ``make_norm`` makes, if anything."""
    torch.manual_seed(0)
    network: nn.Module = cifarnet()
    if make_norm is not None:
        network.norm1, network.norm2 = make_norm(), make_norm()
    images = torch.randn(batch_size, 3, 28, 28)
    labels = torch.randint(10, (batch_size,))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
