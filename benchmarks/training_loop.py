"""What does a run cost beyond the forward and backward passes of its network? CifarNet, groups of 8 x 16, one thread.

The real thing is measured: ``deepbilevel.training.train`` with sampler, augmentation, rule, optimizer, log of steps,
progress lines and checkpoints, on made images of CIFAR's size. Processor time, so that waiting for the processor does
not count. Evaluation is left out: it is forward passes alone.
"""

import contextlib
import io
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from deepbilevel import Bilevel, MatchedGroups
from deepbilevel.cli.watching import Lines
from deepbilevel.data import ImagesInMemory
from deepbilevel.networks.cifarnet import CifarNet
from deepbilevel.specs import with_value
from deepbilevel.training import build, default_spec, run, train
from deepbilevel.training.feeding import Feed
from deepbilevel.training.memory import keep_freed_memory
from deepbilevel.training.step_log import StepLog

NUM_IMAGES = 8_192
EPOCHS = 4  # the first warms up
PASSES = "forward and backward"


class Stopwatch:
    """Adds the processor time between two marks to whoever is at work: the innermost part that was entered."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.running = False
        self._at_work = ["everything else"]
        self._last = 0.0

    def mark(self) -> None:
        """Charge the time since the last mark."""
        now = time.process_time()
        if self.running:
            self.seconds[self._at_work[-1]] += now - self._last
        self._last = now

    def watch(self, name: str, owner: Any, method: str) -> None:
        """Charge the time spent in a method to a name."""
        original: Callable[..., Any] = getattr(owner, method)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self.mark()
            self._at_work.append(name)
            try:
                return original(*args, **kwargs)
            finally:
                self.mark()
                self._at_work.pop()

        setattr(owner, method, wrapper)


class Meter(Lines):
    """Prints its lines as a run without a terminal does, and lets the stopwatch run while groups are trained on."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self._stopwatch = stopwatch

    def progress(self, progress: Any, loop: Any) -> None:
        """Go on from group to group, not from the last one into the evaluation."""
        super().progress(progress, loop)
        self._stopwatch.mark()
        self._stopwatch.running = progress.stage == "train" and progress.epoch > 0 and progress.done < progress.total


def main() -> None:
    """Print the share of each part."""
    keep_freed_memory()  # as the command does
    images = torch.randint(256, (NUM_IMAGES, 3, 32, 32), dtype=torch.uint8)
    made = ImagesInMemory(images=images, labels=torch.arange(NUM_IMAGES) % 10, class_names=tuple("0123456789"))
    build.load_data = lambda *args, **kwargs: made
    spec = default_spec("cifar10", "cifarnet")
    for key, value in {"epochs": EPOCHS, "threads": 1, "evaluate_every": EPOCHS, "data.test_limit": 10}.items():
        spec = with_value(spec, key, value)
    stopwatch = Stopwatch()
    for name, owner, method in (
        (PASSES, CifarNet, "forward"),
        (PASSES, torch.nn.functional, "cross_entropy"),
        (PASSES, torch.Tensor, "backward"),
        ("rule", Bilevel, "backward"),
        ("rule", Bilevel, "fill"),
        ("augmentation", Feed, "_prepare"),
        ("sampler", MatchedGroups, "_draw_epoch"),
        ("optimizer", torch.optim.SGD, "step"),
        ("log of steps", StepLog, "add"),
        ("progress", Lines, "progress"),
        ("checkpoints", run._Run, "_save"),
    ):
        stopwatch.watch(name, owner, method)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        train(spec, out=Path(folder), data_dir=Path(folder), listener=Meter(stopwatch))
    seconds = stopwatch.seconds
    passes = seconds.pop(PASSES)
    num_groups = (EPOCHS - 1) * (NUM_IMAGES // spec.group.size - 1)
    print(f"CifarNet, 8 x 16, one thread, {num_groups} steps; in percent of forward and backward passes")
    for name, value in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{name:<16} {100 * value / passes:5.2f}")
    print(f"{'together':<16} {100 * sum(seconds.values()) / passes:5.2f}")
    rest = sum(seconds.values()) - seconds["optimizer"]
    print(f"{'but optimizer':<16} {100 * rest / passes:5.2f}")


if __name__ == "__main__":
    main()
