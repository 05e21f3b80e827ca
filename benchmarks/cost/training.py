"""What a run costs beyond the forward and backward passes of its network, and how many images it gets through.

The real thing is measured: ``deepbilevel_lab.training.train`` with sampler, augmentation, rule, optimizer, log of
steps, progress and checkpoints, on synthetic images in CIFAR's layout. When the run starts, its parts are exchanged for
subclasses that do the same and keep time; no class is changed. Processor time, so that waiting for the processor does
not count. Evaluation is left out: it is forward passes alone.
"""

import contextlib
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from torch import Tensor

from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep
from deepbilevel_lab.data import find_recipe
from deepbilevel_lab.data.cifar import CIFAR10
from deepbilevel_lab.specs import with_value
from deepbilevel_lab.training import default_spec, train
from deepbilevel_lab.training.build import Parts
from deepbilevel_lab.training.devices import find_device
from deepbilevel_lab.training.feeding import Batch, Feed
from deepbilevel_lab.training.group_passes import make_step
from deepbilevel_lab.training.run import Listener
from deepbilevel_lab.training.step_log import StepLog
from deepbilevel_paper.made_data import write_cifar

PASSES, RULE, SAMPLER, AUGMENTATION = "forward and backward", "rule", "sampler", "augmentation"
OPTIMIZER, LOG, PROGRESS, FILES = "optimizer", "log of steps", "progress", "checkpoints"
REST = "everything else"

Item = TypeVar("Item")


@dataclass(frozen=True)
class TrainingShare:
    """What was measured.

    Attributes:
        num_images: of an epoch; the shorter it is, the more counts what happens between epochs.
        num_steps: how many updates.
        images_per_second: of processor time, everything included but evaluation.
        shares: the time of every part, divided by that of forward and backward passes; empty if those are not known.
    """

    num_images: int
    num_steps: int
    images_per_second: float
    shares: dict[str, float]


class Stopwatch:
    """Adds the processor time between two marks to whoever is at work: the innermost part that was entered."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.running = False
        self._clock = clock
        self._at_work = [REST]
        self._last = 0.0

    def enter(self, name: str) -> None:
        """Charge the time from here on to a name."""
        self._mark()
        self._at_work.append(name)

    def leave(self) -> None:
        """Charge the time from here on to whoever was at work before."""
        self._mark()
        self._at_work.pop()

    @contextlib.contextmanager
    def charging(self, name: str) -> Generator[None]:
        """Charge the time spent inside to a name."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def charged(self, name: str, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the same, and charge the time it takes to make each to a name."""
        iterator = iter(items)
        while True:
            with self.charging(name):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def _mark(self) -> None:
        now = self._clock()
        if self.running:
            self.seconds[self._at_work[-1]] += now - self._last
        self._last = now


class _Step(GroupStep[Any]):
    """Keeps time of the passes, and of what becomes of their gradients."""

    stopwatch: Stopwatch

    def step_over(self, group: Iterable[Any], loss_of: Callable[[Any], Tensor], *, shared_dropout: bool = False) -> Any:
        def watched_loss_of(batch: Any) -> Tensor:
            with self.stopwatch.charging(PASSES):
                return loss_of(batch)

        return super().step_over(group, watched_loss_of, shared_dropout=shared_dropout)

    def backward(self, loss: Tensor, *, labels: Tensor | None = None) -> None:
        with self.stopwatch.charging(RULE):
            super().backward(loss, labels=labels)

    def fill(self) -> Any:
        with self.stopwatch.charging(RULE):
            return super().fill()

    def _gradients_of(self, loss: Tensor) -> dict[int, Tensor]:
        with self.stopwatch.charging(PASSES):
            return super()._gradients_of(loss)


class _Groups(MatchedGroups):
    stopwatch: Stopwatch

    def __iter__(self) -> Iterator[list[int]]:
        return self.stopwatch.charged(SAMPLER, super().__iter__())


class _Feed(Feed):
    stopwatch: Stopwatch

    def groups(self, *arguments: Any, **settings: Any) -> Iterator[list[Batch]]:
        return self.stopwatch.charged(AUGMENTATION, super().groups(*arguments, **settings))


class _Log(StepLog):
    """Keeps time of itself, and of the files that are written when an epoch is over: it is cleared just before."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        super().__init__()
        self._stopwatch = stopwatch

    def add(self, report: Any) -> None:
        with self._stopwatch.charging(LOG):
            super().add(report)

    def clear(self) -> None:
        super().clear()
        self._stopwatch.enter(FILES)  # left when the listener is told of the epoch


def _watched(parts: Parts, stopwatch: Stopwatch) -> Parts:
    """Return parts that do the same and keep time."""
    spec, data = parts.spec, parts.train.data
    method = _Step(parts.model, spec.method, num_batches=parts.num_parts)
    groups = _Groups(
        data.labels.numpy(),
        num_batches=spec.group.num_batches,
        batch_size=spec.group.batch_size,
        seed=spec.seed,
        matched=spec.matched,
    )
    feed = _Feed(
        data, find_recipe(spec.data.recipe), None, split="train", seed=spec.seed, device=find_device(spec.device)
    )
    method.stopwatch = groups.stopwatch = feed.stopwatch = stopwatch

    def before_step(*_: Any) -> None:
        stopwatch.enter(OPTIMIZER)

    def after_step(*_: Any) -> None:
        stopwatch.leave()

    parts.optimizer.register_step_pre_hook(before_step)
    parts.optimizer.register_step_post_hook(after_step)
    step = make_step(spec, parts.model, parts.objective, method, parts.autocast)
    return replace(parts, method=method, groups=groups, train=feed, step=step)


class Meter(Listener):
    """Listens as another listener does, and lets the stopwatch run from the second epoch to the last evaluation."""

    def __init__(self, stopwatch: Stopwatch, listener: Listener, epochs: int) -> None:
        self._stopwatch, self._listener, self._last_epoch = stopwatch, listener, epochs - 1
        self.num_steps = 0

    def started(self, loop: Any, folder: Any) -> None:
        """See :class:`Listener`."""
        self._listener.started(loop, folder)
        loop.parts, loop.steps = _watched(loop.parts, self._stopwatch), _Log(self._stopwatch)

    def progress(self, progress: Any, loop: Any) -> None:
        """See :class:`Listener`."""
        with self._stopwatch.charging(PROGRESS):
            self._listener.progress(progress, loop)
        if progress.stage != "train":
            return
        self.num_steps += self._stopwatch.running
        if progress.done == progress.total:  # between epochs groups are drawn, and rows and checkpoints written
            self._stopwatch.running = progress.epoch < self._last_epoch

    def epoch(self, row: Any) -> None:
        """See :class:`Listener`."""
        self._stopwatch.leave()
        with self._stopwatch.charging(PROGRESS):
            self._listener.epoch(row)


def measure_training(
    num_images: int, epochs: int, listener: Listener, settings: Mapping[str, Any] = MappingProxyType({})
) -> TrainingShare:
    """Train CifarNet on one thread, in groups of 8 x 16 unless ``settings`` say otherwise; the first epoch warms up."""
    spec = default_spec("cifar10", "cifarnet")
    usual = {"epochs": epochs, "threads": 1, "evaluate_every": epochs, "device": "cpu"}
    for key, value in {**usual, "data.limit": num_images, "data.test_limit": 10, **settings}.items():
        spec = with_value(spec, key, value)
    stopwatch = Stopwatch()
    meter = Meter(stopwatch, listener, epochs)
    with tempfile.TemporaryDirectory() as folder:
        write_cifar(Path(folder), CIFAR10, per_batch=ceil(num_images / len(CIFAR10.splits["train"])))
        train(spec, out=Path(folder), data_dir=Path(folder), listener=meter)
    seconds = dict(stopwatch.seconds)
    parts = sorted(seconds.items(), key=lambda item: -item[1])
    passes = seconds.get(PASSES)  # a method that takes a group as one batch calls nothing that could keep this time
    return TrainingShare(
        num_images=num_images,
        num_steps=meter.num_steps,
        images_per_second=meter.num_steps * spec.group.size / sum(seconds.values()),
        shares={name: each / passes for name, each in parts} if passes else {},
    )
