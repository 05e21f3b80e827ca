"""Everything that is measured, put together to one record that JSON can hold.

A plan says what and for how long; nothing in it is left out silently: who fails is in the record with the reason.
"""

import platform
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.cost.contenders import CLOSER, EVERYBODY
from benchmarks.cost.counting import count_updates, peaks_in_models
from benchmarks.cost.timing import Budget, Spread, measure_start_up
from benchmarks.cost.training import measure_training
from benchmarks.cost.updates import (
    AXES,
    BY_NUMBER,
    Axis,
    Growth,
    Row,
    compare_updates,
    measure_growth,
    seconds_of_update,
)
from benchmarks.cost.work import Setting
from deepbilevel_lab import __version__
from deepbilevel_lab.training.memory import keep_freed_memory
from deepbilevel_lab.training.run import Listener

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        updates: settings in which one update is timed, and for how long.
        counted: settings in which the work of an update is counted.
        memory: settings in which memory is counted.
        growth: along which axes cost is followed, and for how long each contender is timed at a point.
        num_images: of the training run.
        epochs: of the training run; the first warms up.
        starts: how often each program is started.
    """

    updates: tuple[tuple[Setting, Budget], ...]
    counted: tuple[Setting, ...]
    memory: tuple[Setting, ...]
    growth: tuple[tuple[Axis, ...], Budget]
    num_images: int
    epochs: int
    starts: int


FULL = Plan(
    updates=(
        (Setting("cifarnet", 8, 8), Budget(seconds=1.2, rounds=9)),
        (Setting("cifarnet", 8, 16), Budget(seconds=1.4, rounds=7)),
        # From here on a round takes up to minutes, so that most contenders have one.
        (Setting("cifarnet", 8, 64), Budget(seconds=1.0, rounds=2, warm_up=False)),
        (Setting("inception", 8, 8), Budget(seconds=1.0, rounds=3, warm_up=False)),
        (Setting("inception", 8, 16), Budget(seconds=1.0, rounds=2, warm_up=False)),
        (Setting("inception", 8, 64), Budget(seconds=1.0, rounds=2, warm_up=False)),
        (Setting("preact_resnet18", 8, 16), Budget(seconds=1.0, rounds=2, warm_up=False)),
    ),
    # Small mini-batches: what comes on top of the passes does not depend on their size.
    counted=tuple(Setting(network, 8, 2) for network in ("cifarnet", "inception")),
    memory=tuple(Setting("cifarnet", k, 4) for k in (2, 8, 32)),
    growth=(AXES, Budget(seconds=0.5, rounds=2, warm_up=False)),
    num_images=3_072,
    epochs=2,
    starts=4,
)
QUICK = Plan(
    updates=tuple(
        (setting, Budget(seconds=0.1, rounds=5)) for setting in (Setting("digit_cnn", 4, 4), Setting("cifarnet", 2, 2))
    ),
    counted=(Setting("digit_cnn", 4, 4),),
    memory=tuple(Setting("digit_cnn", k, 4) for k in (2, 8, 32)),
    growth=((Axis(BY_NUMBER, (Setting("digit_cnn", 2, 4), Setting("digit_cnn", 4, 4))),), Budget(0.1, rounds=5)),
    num_images=256,
    epochs=2,
    starts=1,
)


@dataclass(frozen=True)
class Record:
    """All that was measured.

    Attributes:
        machine: where.
        updates: rows by setting.
        counted: by setting, what contenders do beyond gradient accumulation.
        memory: peaks by setting, in multiples of the model's size.
        growth: how cost grows, and what must be paid.
        training: what a run costs, and its parts.
        start_up: seconds, and ratios to the import of torch.
    """

    machine: dict[str, Any]
    updates: dict[str, list[Row]] = field(default_factory=dict[str, list[Row]])
    counted: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict[str, dict[str, dict[str, float]]])
    memory: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    growth: list[Growth] = field(default_factory=list[Growth])
    training: dict[str, Any] = field(default_factory=dict[str, Any])
    start_up: dict[str, dict[str, Spread]] = field(default_factory=dict[str, dict[str, Spread]])

    def as_json(self) -> dict[str, Any]:
        """Return what ``json.dumps`` takes, and ``deepbilevel report`` reads."""
        return {"format": 1, **asdict(self)}


def measure(plan: Plan, *, listener: Listener, tell: Tell, keep: Callable[[Record], None]) -> Record:
    """Measure everything on one thread.

    Args:
        plan: what, and for how long.
        listener: of the training run, as a user's run has one.
        tell: is told what is measured next.
        keep: is given what there is after every part, for who is interrupted should not lose it all.
    """
    with _one_thread():
        record = Record(machine=_machine())
        for setting, budget in plan.updates:
            tell(f"one update: {setting}")
            record.updates[str(setting)] = compare_updates(setting, budget)
            keep(record)
        for setting in plan.counted:
            tell(f"counted work: {setting}")
            record.counted[str(setting)] = count_updates(setting)
        for setting in plan.memory:
            tell(f"memory: {setting}")
            record.memory[str(setting)] = peaks_in_models(setting)
        axes, budget = plan.growth
        for axis in axes:
            record.growth.append(measure_growth(axis, partial(seconds_of_update, budget=budget), tell))
            keep(record)
        tell("a training run: cifarnet 8x16")
        record.training.update(asdict(measure_training(plan.num_images, plan.epochs, listener)))
        keep(record)
        tell("start-up")
        record.start_up.update(measure_start_up(plan.starts))
        keep(record)
    return record


def look_closer(settings: Sequence[Setting], rounds: int, *, tell: Tell, keep: Callable[[Record], None]) -> Record:
    """Time one update in many rounds, of those alone whom claims are about, the peers nearest to them and our rule."""
    contenders = [each for each in EVERYBODY if each.name in CLOSER]
    with _one_thread():
        record = Record(machine=_machine())
        for setting in settings:
            tell(f"one update: {setting}")
            record.updates[str(setting)] = compare_updates(setting, Budget(0.0, rounds), contenders, CLOSER)
            keep(record)
    return record


@contextmanager
def _one_thread() -> Generator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_freed_memory()  # as the commands that train do
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "deepbilevel": __version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
