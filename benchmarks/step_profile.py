"""What does the bilevel rule cost on top of forward and backward? CifarNet, 8 mini-batches of 16, one thread, CPU.

All ways run the same forward and backward passes and differ in what becomes of the gradients: they are dropped, added
up in ``.grad``, or weighed by ``Bilevel``. They take turns, so that whatever else the machine does falls on all of
them, and processor time is measured, so that waiting for the processor does not count. A ratio to the first way is
taken within each round; the table shows the median over rounds, and between which values the middle half lies.
"""

import time
from collections.abc import Callable
from statistics import median, quantiles

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from deepbilevel import Bilevel
from deepbilevel.networks import cifarnet

ROUNDS = 60
NUM_BATCHES = 8
BATCH_SIZE = 16


def main() -> None:
    """Print one line per way of using the gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = cifarnet()
    ways = {
        "forward and backward": dropped(network),
        "gradient accumulation": accumulate,
        "bilevel": weighed(network),
        "bilevel, per layer": weighed(network, per_layer=True),
    }
    images = torch.randn(NUM_BATCHES, BATCH_SIZE, 3, 28, 28)
    labels = torch.randint(10, (NUM_BATCHES, BATCH_SIZE))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        # Whoever comes first finds the caches as the last one left them, so each comes first in turn.
        first = number % len(ways)
        for name in [*ways][first:] + [*ways][:first]:
            start = time.process_time()
            for x, y in zip(images, labels, strict=True):
                ways[name](F.cross_entropy(network(x), y))
            network.zero_grad()
            if number > 0:  # the first round warms up
                seconds[name].append(time.process_time() - start)
    print(f"CifarNet, {NUM_BATCHES} x {BATCH_SIZE} images; torch {torch.__version__}, {ROUNDS} rounds")
    print(f"{'':<21}  {'ms':>6}  {'ratio':>5}  half")
    for name, own in seconds.items():
        ratios = [mine / alone for mine, alone in zip(own, seconds["forward and backward"], strict=True)]
        low, _, high = quantiles(ratios, n=4)
        print(f"{name:<21}  {1e3 * median(own):6.1f}  {median(ratios):5.3f}  {low:.3f} - {high:.3f}")


def dropped(network: nn.Module) -> Callable[[Tensor], None]:
    """Return what uses a loss by computing its gradients and dropping them."""

    def use(loss: Tensor) -> None:
        loss.backward()
        network.zero_grad()

    return use


def accumulate(loss: Tensor) -> None:
    """Add the gradients of a loss to ``.grad``, as a loop over a large mini-batch in parts does."""
    (loss / NUM_BATCHES).backward()


def weighed(network: nn.Module, *, per_layer: bool = False) -> Callable[[Tensor], None]:
    """Return what collects a loss for the bilevel rule, and fills ``.grad`` when the group is full."""
    bilevel = Bilevel(network, num_batches=NUM_BATCHES, per_layer=per_layer)

    def use(loss: Tensor) -> None:
        bilevel.backward(loss)
        if bilevel.full:
            bilevel.fill()

    return use


if __name__ == "__main__":
    main()
