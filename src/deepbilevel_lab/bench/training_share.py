"""What a run costs beyond the forward and backward passes of its network, and how many images it gets through.

The real thing is measured: ``deepbilevel_lab.training.train`` with sampler, augmentation, rule, optimizer, log of
steps, progress and checkpoints, on made images of CIFAR's size. Processor time, so that waiting for the processor does
not count. Evaluation is left out: it is forward passes alone.
"""

import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep
from deepbilevel_lab.data import ImagesInMemory
from deepbilevel_lab.networks.cifarnet import CifarNet
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training import build, default_spec, run, train
from deepbilevel_lab.training.feeding import Feed
from deepbilevel_lab.training.run import Listener
from deepbilevel_lab.training.step_log import StepLog

PASSES = "forward and backward"
_PARTS: tuple[tuple[str, Any, str], ...] = (
    (PASSES, CifarNet, "forward"),
    (PASSES, torch.nn.functional, "cross_entropy"),
    (PASSES, torch.Tensor, "backward"),
    ("rule", GroupStep, "backward"),
    ("rule", GroupStep, "fill"),
    ("augmentation", Feed, "_prepare"),
    ("sampler", MatchedGroups, "_draw_epoch"),
    ("optimizer", torch.optim.SGD, "step"),
    ("log of steps", StepLog, "add"),
    ("checkpoints", run._Run, "_save"),  # pyright: ignore[reportPrivateUsage]  # a user cannot time it, we must
)


@dataclass(frozen=True)
class TrainingShare:
    """What was measured.

    Attributes:
        num_images: of an epoch; the shorter it is, the more counts what happens between epochs.
        num_steps: how many updates.
        images_per_second: of processor time, everything included but evaluation.
        shares: the time of every part, divided by that of forward and backward passes.
    """

    num_images: int
    num_steps: int
    images_per_second: float
    shares: dict[str, float]


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

    @contextlib.contextmanager
    def charging(self, name: str) -> Generator[None]:
        """Charge the time spent inside to a name."""
        self.mark()
        self._at_work.append(name)
        try:
            yield
        finally:
            self.mark()
            self._at_work.pop()

    def watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and is charged to a name."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self.charging(name):
                return original(*args, **kwargs)

        return wrapper


class _Meter(Listener):
    """Listens as another listener does, and lets the stopwatch run from the second epoch to the last evaluation."""

    def __init__(self, stopwatch: Stopwatch, listener: Listener, epochs: int) -> None:
        self._stopwatch, self._listener, self._last_epoch = stopwatch, listener, epochs - 1
        self.num_steps = 0

    def started(self, loop: Any, folder: Any) -> None:
        """See :class:`Listener`."""
        self._listener.started(loop, folder)

    def progress(self, progress: Any, loop: Any) -> None:
        """See :class:`Listener`."""
        with self._stopwatch.charging("progress"):
            self._listener.progress(progress, loop)
        if progress.stage != "train":
            return
        self.num_steps += self._stopwatch.running
        if progress.done == progress.total:  # between epochs groups are drawn, and rows and checkpoints written
            self._stopwatch.running = progress.epoch < self._last_epoch


def measure_training(num_images: int, epochs: int, listener: Listener) -> TrainingShare:
    """Train CifarNet in groups of 8 x 16 on one thread; the first epoch warms up."""
    images = torch.randint(256, (num_images, 3, 32, 32), dtype=torch.uint8)
    made = ImagesInMemory(images=images, labels=torch.arange(num_images) % 10, class_names=tuple("0123456789"))

    def made_images(*_args: Any, **_settings: Any) -> ImagesInMemory:
        return made

    spec = default_spec("cifar10", "cifarnet")
    for key, value in {"epochs": epochs, "threads": 1, "evaluate_every": epochs, "data.test_limit": 10}.items():
        spec = with_value(spec, key, value)
    stopwatch = Stopwatch()
    meter = _Meter(stopwatch, listener, epochs)
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        _replace(stack, build, "load_data", made_images)
        for name, owner, method in _PARTS:
            _replace(stack, owner, method, stopwatch.watched(name, getattr(owner, method)))
        train(spec, out=Path(folder), data_dir=Path(folder), listener=meter)
    seconds = dict(stopwatch.seconds)
    return TrainingShare(
        num_images=num_images,
        num_steps=meter.num_steps,
        images_per_second=meter.num_steps * spec.group.size / sum(seconds.values()),
        shares={name: each / seconds[PASSES] for name, each in sorted(seconds.items(), key=lambda item: -item[1])},
    )


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    """Put something in the place of an attribute until the stack is left; what was inherited is inherited again."""
    if name in vars(owner):
        stack.callback(setattr, owner, name, vars(owner)[name])
    else:
        stack.callback(delattr, owner, name)
    setattr(owner, name, value)
