"""Ways to watch a run: a bar on a terminal, lines in a log, JSON for programs, or silence."""

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from deepbilevel_lab.records import Row, to_json
from deepbilevel_lab.training.run import Listener

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from deepbilevel_lab.training.folder import RunFolder
    from deepbilevel_lab.training.loop import Progress, TrainingLoop

_REFRESH_SECONDS = 0.25  # reading a loss waits for the device
_LINE_SECONDS = 60.0


def describe_row(row: Row) -> str:
    """Return an epoch in one line."""
    loss = "-" if row.loss is None else f"{row.loss:.3f}"
    parts = [f"loss {loss}"]
    if row.negative_share:  # most methods have none
        parts.append(f"negative weights {100 * row.negative_share:.1f} %")
    measured = {"train": row.train, "clean": row.train_clean, "selection": row.selection, "test": row.test}
    parts += [f"{label} {value:.2f}" for label, value in measured.items() if value is not None]
    if row.skipped_batches:
        parts.append(f"{row.skipped_batches} mini-batches skipped")
    return "  ".join(parts)


def describe_now(loop: "TrainingLoop") -> str:
    """Return what the last step said, and the last accuracy."""
    report = loop.report
    parts = [f"loss {report.losses.mean().item():.3f}"]
    negative = 100 * (report.weights < 0).float().mean().item()
    if negative:
        parts.append(f"negative {negative:.0f} %")
    tested = [row.test for row in loop.history if row.test is not None]
    if tested:
        parts.append(f"test {tested[-1]:.2f} (best {max(tested):.2f})")
    return "  ".join(parts)


def tell(text: str) -> None:
    """Print a line that is seen at once, also in a log."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python would try again at its end, complain, and forget the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


class Lines(Listener):
    """A line per epoch, and one per minute where epochs are long."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._epochs = 0
        self._started = 0.0
        self._first_epoch = 0

    def message(self, text: str) -> None:
        """See :class:`Listener`."""
        tell(text)

    def started(self, loop: "TrainingLoop", folder: "RunFolder") -> None:
        """See :class:`Listener`."""
        self._epochs = loop.parts.spec.epochs
        self._first_epoch, self._started = loop.epoch, time.monotonic()
        self.message(f"training in {folder.path}")

    def progress(self, progress: "Progress", loop: "TrainingLoop") -> None:
        """See :class:`Listener`."""
        if time.monotonic() - self._last > _LINE_SECONDS and loop.report is not None:
            self._last = time.monotonic()
            what = "groups" if progress.stage == "train" else "evaluated"
            place = f"epoch {progress.epoch + 1}/{self._epochs}, {progress.done:,} of {progress.total:,} {what}"
            self.message(f"{place}  {describe_now(loop)}")

    def epoch(self, row: Row) -> None:
        """See :class:`Listener`."""
        self._last = time.monotonic()
        share = (row.epoch - self._first_epoch) / max(self._epochs - self._first_epoch, 1)
        left = (self._last - self._started) / share * (1 - share)
        self.message(f"epoch {row.epoch}/{self._epochs}  {describe_row(row)}  {duration(left)} left")


class Bar(Listener):
    """A progress bar over the whole run, with its ETA, and a line per epoch above it."""

    def __init__(self, bars: "Bars") -> None:
        self._bars = bars
        self._last = 0.0
        self._epochs = self._num_groups = 0

    def message(self, text: str) -> None:
        """See :class:`Listener`."""
        self._bars.console.print(text, highlight=False, soft_wrap=True)

    def started(self, loop: "TrainingLoop", folder: "RunFolder") -> None:
        """See :class:`Listener`."""
        num_groups, spec = loop.parts.groups.num_groups, loop.parts.spec
        self._epochs, self._num_groups = spec.epochs, num_groups
        self._task = self._bars.add_task(
            f"epoch {loop.epoch + 1} of {spec.epochs}", total=spec.epochs * num_groups, now=""
        )
        self._bars.update(self._task, completed=loop.epoch * num_groups + loop.group)
        self.message(f"training in {folder.path}")

    def progress(self, progress: "Progress", loop: "TrainingLoop") -> None:
        """See :class:`Listener`."""
        if time.monotonic() - self._last < _REFRESH_SECONDS:
            return
        self._last = time.monotonic()
        stage = "" if progress.stage == "train" else f", evaluating {100 * progress.done // progress.total} %"
        self._bars.update(
            self._task,
            completed=loop.epoch * loop.parts.groups.num_groups + loop.group,
            description=f"epoch {progress.epoch + 1} of {loop.parts.spec.epochs}{stage}",
            now=describe_now(loop) if loop.report is not None else "",
        )

    def epoch(self, row: Row) -> None:
        """See :class:`Listener`."""
        self.message(f"epoch {row.epoch}  {describe_row(row)}")
        self._bars.update(
            self._task,
            completed=row.epoch * self._num_groups,  # the last groups may have come between two refreshes
            description=f"epoch {row.epoch} of {self._epochs}",
            now="",  # the line above says more
        )


class Json(Listener):
    """One JSON object per line.

    Args:
        progress_seconds: how often to say what happens within an epoch; never by default.
    """

    def __init__(self, progress_seconds: float | None = None) -> None:
        self._progress_seconds = progress_seconds
        self._last = time.monotonic()

    def say(self, event: str, **content: Any) -> None:
        """Print an event."""
        tell(json.dumps({"event": event, **content}))

    def message(self, text: str) -> None:
        """See :class:`Listener`."""
        self.say("message", text=text)

    def started(self, loop: "TrainingLoop", folder: "RunFolder") -> None:
        """See :class:`Listener`."""
        spec = loop.parts.spec
        self.say("started", folder=str(folder.path), id=spec.id, seed=spec.seed, epoch=loop.epoch, epochs=spec.epochs)

    def progress(self, progress: "Progress", loop: "TrainingLoop") -> None:
        """See :class:`Listener`."""
        if self._progress_seconds is not None and time.monotonic() - self._last > self._progress_seconds:
            self._last = time.monotonic()
            share = progress.done / progress.total if progress.stage == "train" else 1.0
            self.say("progress", epoch=progress.epoch, share=round(share, 4))

    def epoch(self, row: Row) -> None:
        """See :class:`Listener`."""
        self.say("epoch", **to_json(row))


class Silence(Listener):
    """Nothing but what a person must know, on the error stream."""

    def message(self, text: str) -> None:
        """See :class:`Listener`."""
        print(text, file=sys.stderr)


def duration(seconds: float) -> str:
    """Return a time as people say it.

    >>> duration(59), duration(3700)
    ('59s', '1h01m')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest}s"
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def new_bars() -> "Bars":
    """Return the progress display of runs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}"),
        console=Console(),
    )
