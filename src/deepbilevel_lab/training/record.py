"""Making the record of a run that is under way or over; what it holds is said in :mod:`deepbilevel_lab.records`."""

import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from deepbilevel_lab.records import Environment, Images, Row, RunRecord, Seconds, Status
from deepbilevel_lab.specs import to_plain
from deepbilevel_lab.training.loop import TrainingLoop

_PACKAGES = ("deepbilevel", "torch", "numpy", "safetensors", "pillow", "scikit-learn")


def make_record(loop: TrainingLoop, status: Status, data_dir: Path, *, error: str | None = None) -> RunRecord:
    """Return the record as it stands."""
    spec, parts = loop.parts.spec, loop.parts
    seconds = loop.clock.totals()
    steps = loop.epoch * parts.groups.num_groups + loop.group
    evaluated = [row for row in loop.history if row.test is not None]
    return RunRecord(
        id=spec.id,
        name=spec.name,
        status=status,
        error=error,
        process=os.getpid(),
        processes=parts.processes.size,
        updated=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        spec=to_plain(spec),
        metric="mAP" if parts.train.data.multi_label else "accuracy",
        final=evaluated[-1] if evaluated else None,
        best=_best_row(evaluated),
        history=tuple(loop.history),
        images=Images(train=len(parts.train.data), test=len(parts.test.data)),
        parameters=sum(parameter.numel() for parameter in parts.model.parameters()),
        steps=steps,
        seconds=Seconds(**{name: round(value, 3) for name, value in seconds.items()}),
        samples_per_second=round(steps * spec.group.size / seconds["training"], 1) if seconds["training"] else None,
        data_dir=str(data_dir.resolve()),
        environment=environment(),
    )


def _best_row(evaluated: list[Row]) -> Row | None:
    """Return the epoch with the best test result, the first of equals."""
    return max(evaluated, key=lambda row: row.test or 0.0, default=None)


def environment() -> Environment:
    """Return what the run runs on: versions, commit and hardware."""
    return Environment(
        python=platform.python_version(),
        packages={name: version for name in _PACKAGES if (version := _version(name)) is not None},
        commit=_commit(),
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=os.cpu_count(),
        devices=tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


@cache  # what runs is what was loaded, whatever becomes of the files
def _commit() -> str | None:
    """Return the commit of our source, with a plus if files were changed since; None if it is not under git."""
    source = str(Path(__file__).parent)
    try:
        tracked = _git(source, "ls-files", "--error-unmatch", "record.py")
        commit = _git(source, "rev-parse", "HEAD") if tracked else None
        changed = _git(source, "status", "--porcelain", "--untracked-files=no") if commit else ""
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}+" if commit and changed else commit


def _git(folder: str, *command: str) -> str | None:
    done = subprocess.run(["git", "-C", folder, *command], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
