"""What an experiment costs: sample visits, which are exact, and hours on this machine, from a short probe.

The probe times passes of the real networks over random images in the real mini-batches, updates and evaluations; a run
is so many of each. Decoding of image files, augmentation and checkpoints are not in it.
"""

import json
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.training.devices import find_device
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_paper.recipes import rated_images, tested_images, trained_images

_NUM_CLASSES = 10  # the last layer is a small part of every network here
_SECONDS = 0.5  # of every measurement, or two steps
_SLOW_SECONDS = 2.0  # a step that takes longer is measured once: that it is the first weighs little then
_EVALUATED = 16

_Step: TypeAlias = Callable[[], object]


def sample_visits(spec: RunSpec) -> int:
    """Return how many images a run trains on, counted as often as they come; published data sets only.

    >>> from deepbilevel_lab.training import default_spec
    >>> sample_visits(default_spec("cifar10"))  # 100 epochs of 390 groups of 128
    4992000
    """
    return spec.epochs * (trained_images(spec.data) // spec.group.size) * spec.group.size


def evaluated_images(spec: RunSpec) -> int:
    """Return how many images a run evaluates, every crop counted."""
    crops = spec.data.test_crops
    times = -(-spec.epochs // spec.evaluate_every)
    return times * (rated_images(spec.data) + crops * tested_images(spec.data))


@dataclass
class Probe:
    """Measures how long the parts of runs take on this machine, each once: passes, updates, evaluations.

    Attributes:
        file: where measurements are kept from one process to the next, if anywhere.
        anew: measure what is known already once more; the machine may have been busy then.
        clock: seconds; another one is for tests.
    """

    file: Path | None = None
    anew: bool = False
    clock: Callable[[], float] = time.perf_counter
    _known: dict[str, float] = field(default_factory=dict[str, float], init=False)
    _own: set[str] = field(default_factory=set[str], init=False)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.is_file():
            try:
                read = json.loads(self.file.read_text(encoding="utf-8"))
                self._known = {key: float(seconds) for key, seconds in read.items()}
            except (ValueError, TypeError, AttributeError):
                self._known = {}  # measuring again is all there is to lose

    def hours(self, specs: Iterable[RunSpec]) -> float:
        """Return how long runs take on this machine, one after another."""
        return sum(self.seconds(spec) for spec in specs) / 3600

    def seconds(self, spec: RunSpec) -> float:
        """Return how long a run takes on this machine."""
        parts = spec.group.num_batches if spec.method.splits else 1
        size = spec.group.size // parts
        # What the rules of methods add is small beside the passes.
        group = parts * self._measured(spec, f"pass of {size}", partial(_make_pass, num_images=size))
        group += self._measured(spec, "update", _make_update)
        evaluation = self._measured(spec, f"evaluation of {_EVALUATED}", _make_evaluation)
        return sample_visits(spec) / spec.group.size * group + evaluated_images(spec) / _EVALUATED * evaluation

    def _measured(self, spec: RunSpec, part: str, make: Callable[[RunSpec, nn.Module], _Step]) -> float:
        """Return the seconds of a part of a run, measured if nothing like it was before."""
        machine = f"{platform.node()}, torch {torch.__version__}, {spec.device}, {spec.threads} threads"
        key = f"{machine}: {spec.network.name}, {part}"
        if key not in self._known or (self.anew and key not in self._own):
            self._known[key] = self._measure(spec, make)
            self._own.add(key)
            if self.file is not None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                write_text(self.file, json.dumps(self._known, indent=1) + "\n")
        return self._known[key]

    def _measure(self, spec: RunSpec, make: Callable[[RunSpec, nn.Module], _Step]) -> float:
        threads = torch.get_num_threads()
        torch.set_num_threads(spec.threads)
        try:
            with torch.random.fork_rng():
                device = find_device(spec.device)
                model = make_model(replace(spec.network, weights=None), _NUM_CLASSES).to(device)
                return self._fastest(make(spec, model), device)
        finally:
            torch.set_num_threads(threads)

    def _fastest(self, step: _Step, device: torch.device) -> float:
        """Return the seconds of the fastest of some steps."""
        began, best = self.clock(), float("inf")
        for number in count(1):
            started = self.clock()
            step()
            if device.type != "cpu":
                getattr(torch, device.type).synchronize()
            best = min(best, self.clock() - started)
            if best > _SLOW_SECONDS or (number >= 2 and self.clock() - began > _SECONDS):
                return best
        raise AssertionError("a count has no end")


def _make_pass(spec: RunSpec, model: nn.Module, num_images: int) -> _Step:
    """Return a forward and a backward pass of a mini-batch, its gradient added up."""
    images = _random_images(spec, model, num_images)
    labels = torch.arange(num_images, device=images.device) % _NUM_CLASSES
    model.train()

    def step() -> None:
        F.cross_entropy(model(images), labels).backward()

    return step


def _make_update(spec: RunSpec, model: nn.Module) -> _Step:
    _make_pass(spec, model, num_images=2)()
    return spec.optimizer.make(model).step


def _make_evaluation(spec: RunSpec, model: nn.Module) -> _Step:
    images = _random_images(spec, model, _EVALUATED)
    model.eval()
    return torch.no_grad()(lambda: model(images))


def _random_images(spec: RunSpec, model: nn.Module, num_images: int) -> torch.Tensor:
    device = next(model.parameters()).device
    return torch.randn(num_images, *spec.input_shape, device=device)
