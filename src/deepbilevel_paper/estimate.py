"""What an experiment costs: sample visits, which are exact, and hours on this machine, from a short probe.

The probe trains the real network on random images, in the real groups, for a few steps, and evaluates some. Decoding of
image files, augmentation and checkpoints are not in it.
"""

import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel.methods import Average
from deepbilevel.networks.catalog import NETWORKS
from deepbilevel.replacement import write_text
from deepbilevel.training.build import find_device, make_model
from deepbilevel.training.spec import RunSpec
from deepbilevel_paper.sizes import tested_images, trained_images

_NUM_CLASSES = 10  # the last layer is a small part of every network here
_SECONDS = 1.0  # of every measurement, or two groups
_EVALUATED = 64


@dataclass(frozen=True)
class Speed:
    """Images a second, in training and in evaluation."""

    training: float
    evaluation: float


def sample_visits(spec: RunSpec) -> int:
    """Return how many images a run trains on, counted as often as they come; published data sets only.

    >>> from deepbilevel.training import default_spec
    >>> sample_visits(default_spec("cifar10"))  # 100 epochs of 390 groups of 128
    4992000
    """
    return spec.epochs * (trained_images(spec.data) // spec.group.size) * spec.group.size


def evaluated_images(spec: RunSpec) -> int:
    """Return how many images a run evaluates, every crop counted."""
    crops = spec.data.test_crops
    times = -(-spec.epochs // spec.evaluate_every)
    return times * (trained_images(spec.data) + crops * tested_images(spec.data))


@dataclass
class Probe:
    """Measures speeds on this machine, each kind of run once.

    Attributes:
        file: where measurements are kept from one process to the next, if anywhere.
        clock: seconds; another one is for tests.
    """

    file: Path | None = None
    clock: Callable[[], float] = time.perf_counter
    _known: dict[str, Speed] = field(default_factory=dict[str, Speed], init=False)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.is_file():
            try:
                read = json.loads(self.file.read_text(encoding="utf-8"))
                self._known = {key: Speed(**speed) for key, speed in read.items()}
            except (ValueError, TypeError, AttributeError):
                self._known = {}  # measuring again is all there is to lose

    def hours(self, specs: Iterable[RunSpec]) -> float:
        """Return how long runs take on this machine, one after another."""
        return sum(self.seconds(spec) for spec in specs) / 3600

    def seconds(self, spec: RunSpec) -> float:
        """Return how long a run takes on this machine."""
        speed = self.speed(spec)
        return sample_visits(spec) / speed.training + evaluated_images(spec) / speed.evaluation

    def speed(self, spec: RunSpec) -> Speed:
        """Return how fast a run is, measured if nothing like it was before."""
        parts = spec.group.num_batches if spec.method.splits else 1
        machine = f"{platform.node()}, torch {torch.__version__}, {spec.device}, {spec.threads} threads"
        key = f"{machine}: {spec.network.name}, {parts} x {spec.group.size // parts}"
        if key not in self._known:
            self._known[key] = self._measure(spec, parts)
            if self.file is not None:
                plain = {name: vars(speed) for name, speed in self._known.items()}
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_text(self.file, json.dumps(plain, indent=1) + "\n")
        return self._known[key]

    def _measure(self, spec: RunSpec, parts: int) -> Speed:
        threads = torch.get_num_threads()
        torch.set_num_threads(spec.threads)
        try:
            with torch.random.fork_rng():
                device = find_device(spec.device)
                model = make_model(replace(spec.network, weights=None), _NUM_CLASSES).to(device)
                return Speed(self._train(spec, model, parts, device), self._evaluate(spec, model, device))
        finally:
            torch.set_num_threads(threads)

    def _train(self, spec: RunSpec, model: nn.Module, parts: int, device: torch.device) -> float:
        size = spec.group.size // parts
        images, labels = _random_images(spec, size, device), torch.arange(size, device=device) % _NUM_CLASSES
        # Average does the passes of every method that splits groups; what their rules add is small beside them.
        method, optimizer = Average(model, num_batches=parts), spec.optimizer.make(model)

        def step() -> None:
            for _ in range(parts):
                method.backward(F.cross_entropy(model(images), labels))
            method.fill()
            optimizer.step()

        model.train()
        return spec.group.size / self._fastest(step, device)

    def _evaluate(self, spec: RunSpec, model: nn.Module, device: torch.device) -> float:
        images = _random_images(spec, _EVALUATED, device)

        def step() -> None:
            with torch.no_grad():
                model(images)

        model.eval()
        return _EVALUATED / self._fastest(step, device)

    def _fastest(self, step: Callable[[], None], device: torch.device) -> float:
        """Return the seconds of the fastest of some steps, the first of which only warms up."""
        step()
        began, best = self.clock(), float("inf")
        for number in count(1):
            started = self.clock()
            step()
            if device.type != "cpu":
                getattr(torch, device.type).synchronize()
            best = min(best, self.clock() - started)
            if number >= 2 and self.clock() - began > _SECONDS:
                return max(best, 1e-9)
        raise AssertionError("a count has no end")


def _random_images(spec: RunSpec, num_images: int, device: torch.device) -> torch.Tensor:
    return torch.randn(num_images, *NETWORKS[spec.network.name].input_shape, device=device)
