"""Is it worth training with plain gradients first, and with shrunken ones once a noisy hold-out stops improving?

    python benchmarks/switching.py results/switching.json      # about ten minutes of a core

Digits, groups of 8 x 16, SGD with momentum, cosine schedule, 50 epochs. A tenth of the noisy training images is held
out: it chooses the learning rate of each method with seed 0, and the epoch after which gradients are shrunk.
"""

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from deepbilevel import CrossValidated, GroupStep, MatchedGroups
from deepbilevel.rules.average import Uniform
from deepbilevel_lab.data import load_data
from deepbilevel_lab.networks import build_network
from deepbilevel_lab.noise import parse_noise

METHODS = ("plain", "shrunken", "plain, then shrunken")
NOISE = (None, "uniform:0.4", "uniform:0.6", "pair:0.4")
RATES = (0.03, 0.1, 0.3)
SEEDS = (0, 1, 2)
EPOCHS = 50
_PATIENCE = 3  # epochs without a better hold-out accuracy
_BATCHES = 8

_Split = tuple[Tensor, Tensor]


def _splits(noise: str | None, seed: int) -> tuple[_Split, _Split, _Split]:
    """Return images and labels to train on, held out, and tested on; only the last labels are clean for sure."""
    data, test = load_data("digits"), load_data("digits", split="test")
    labels = torch.as_tensor(data.labels)
    given = (
        labels if noise is None else torch.as_tensor(parse_noise(noise).apply(labels, num_classes=10, seed=seed).labels)
    )
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held, trained = order[: len(order) // 10], order[len(order) // 10 :]
    images = data.images.float() / 255
    return (
        (images[trained], given[trained]),
        (images[held], given[held]),
        (test.images.float() / 255, torch.as_tensor(test.labels)),
    )


@torch.no_grad()
def _accuracy(model: nn.Module, split: _Split) -> float:
    model.eval()
    right = (model(split[0]).argmax(1) == split[1]).float().mean().item()
    model.train()
    return 100 * right


def train(method: str, noise: str | None, lr: float, seed: int) -> dict[str, Any]:
    """Train once and return what was measured."""
    training, held, test = _splits(noise, seed)
    torch.manual_seed(seed)
    model = build_network("digit_cnn", num_classes=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    groups = MatchedGroups(training[1], num_batches=_BATCHES, batch_size=16, seed=seed)
    loader = DataLoader(TensorDataset(*training), batch_sampler=groups)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    steps: dict[bool, Any] = {
        False: GroupStep(model, Uniform(use_validation=True), num_batches=_BATCHES),
        True: CrossValidated(model, num_batches=_BATCHES),
    }
    shrinks, best_held, since, switched = method == "shrunken", 0.0, 0, None
    curve: list[float] = []
    for epoch in range(EPOCHS):
        groups.set_epoch(epoch)
        step = steps[shrinks]
        for images, labels in loader:
            step.backward(nn.functional.cross_entropy(model(images), labels))
            if step.full:
                step.fill()
                optimizer.step()
                optimizer.zero_grad()
        step.reset()
        schedule.step()
        accuracy = _accuracy(model, held)
        since = 0 if accuracy > best_held else since + 1
        best_held = max(best_held, accuracy)
        if method == METHODS[2] and not shrinks and since >= _PATIENCE:
            shrinks, switched = True, epoch + 1
        curve.append(_accuracy(model, test))
    return {
        "method": method, "noise": noise, "lr": lr, "seed": seed, "held": accuracy, "switched": switched,
        "last": curve[-1], "best": max(curve), "train": _accuracy(model, training),
    }  # fmt: skip


def _runs() -> Iterator[dict[str, Any]]:
    for noise in NOISE:
        for method in METHODS:
            tried = [train(method, noise, lr, SEEDS[0]) for lr in RATES]
            yield from tried
            chosen = max(tried, key=lambda run: run["held"])["lr"]
            yield from (train(method, noise, chosen, seed) for seed in SEEDS[1:])


def _print_table(runs: list[dict[str, Any]]) -> None:
    """Print each method with its own rate: last and best epoch, mean and standard deviation over seeds."""
    for noise in NOISE:
        for method in METHODS:
            own = [run for run in runs if (run["noise"], run["method"]) == (noise, method)]
            rate = own[-1]["lr"]  # of the seeds that did not choose it
            chosen = [run for run in own if run["lr"] == rate]
            last, best = ([run[name] for run in chosen] for name in ("last", "best"))
            epochs = [run["switched"] for run in chosen]
            print(
                f"{noise or 'clean'} | {method} | lr {rate} | last {_mean_and_spread(last)} "
                f"| best {_mean_and_spread(best)} | switched after {epochs}"
            )


def _mean_and_spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def main(results: Path) -> None:
    """Train everything, write the numbers and print the table."""
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for run in _runs():
        runs.append(run)
        print(run, flush=True)
        results.write_text(json.dumps({"epochs": EPOCHS, "patience": _PATIENCE, "runs": runs}, indent=1) + "\n")
    _print_table(runs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
