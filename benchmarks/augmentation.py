"""What augmentation costs, as a share of the training step it feeds: CifarNet's forward and backward pass.

Both are timed in turn on one thread, and every round gives one ratio, so that a machine that is slow for a while is
slow for both. Printed are the median of the ratios and the span of their middle half. The claim: the recipe of the
Inception network costs less than 3 % of CifarNet, the smallest network of the paper, in batches of 16 and of 128.

    python benchmarks/augmentation.py --rounds 30
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from deepbilevel_lab.data.recipes import RECIPES, Recipe
from deepbilevel_lab.networks import cifarnet

BATCH_SIZES = (16, 128)
REPEATS = 5  # calls of a recipe per measurement: a single one is too short to be timed well


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(batch_size: int, rounds: int) -> None:
    """Print the cost of every recipe in training, in milliseconds and as a share of the step."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (batch_size, 3, 32, 32), dtype=torch.uint8, generator=generator)
    inputs = torch.randn(batch_size, 3, 28, 28, generator=generator)
    labels = torch.randint(10, (batch_size,), generator=generator)
    indices = torch.arange(batch_size)
    network = cifarnet(num_classes=10)

    def step() -> None:
        network.zero_grad()
        F.cross_entropy(network(inputs), labels).backward()

    def augment(recipe: Recipe) -> None:
        for _ in range(REPEATS):
            recipe.apply("train", images, generator, indices=indices, split="train")

    shares: dict[str, list[float]] = {name: [] for name in RECIPES}
    times: dict[str, list[float]] = {name: [] for name in ("step", *RECIPES)}
    for number in range(rounds + 2):
        of_step = seconds(step)
        of_recipes = {
            name: seconds(lambda recipe=recipe: augment(recipe)) / REPEATS for name, recipe in RECIPES.items()
        }
        if number < 2:  # the first rounds warm up
            continue
        times["step"].append(of_step)
        for name, of_recipe in of_recipes.items():
            times[name].append(of_recipe)
            shares[name].append(of_recipe / of_step)
    print(f"\nbatch of {batch_size}: CifarNet forward + backward {1e3 * statistics.median(times['step']):.1f} ms")
    for name, values in shares.items():
        low, median, high = statistics.quantiles(values, n=4)
        print(f"  {name:18} {1e3 * statistics.median(times[name]):7.3f} ms  {median:7.2%}  ({low:.2%} to {high:.2%})")


def main() -> None:
    """Measure all recipes at all batch sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="how many ratios to take")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, one thread, {rounds} rounds; median and middle half of the shares")
    for batch_size in BATCH_SIZES:
        measure(batch_size, rounds)


if __name__ == "__main__":
    main()
