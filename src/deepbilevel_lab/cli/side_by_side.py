"""Many runs watched from one place: bars on a terminal, lines in a log, JSON for programs, or results alone."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from deepbilevel_lab.cli.messages import FAILED, INTERRUPTED, last_words
from deepbilevel_lab.cli.watching import describe_row, duration, tell
from deepbilevel_lab.records import MeanFigure, Row, RunRecord, from_json, show_figure
from deepbilevel_lab.sweeps.trials import Executor, News, Outcome, Trial, Watcher, run_trials

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from deepbilevel_lab.training.spec import RunSpec


def run_seeds(specs: "list[RunSpec]", place: Executor, jobs: int, *, quiet: bool, as_json: bool) -> int:
    """Run one spec with several seeds, print a summary, and return the exit code."""
    trials = [Trial(f"seed {spec.seed}", spec, {"seed": spec.seed}) for spec in specs]
    outcomes = run_and_show(trials, place, jobs, quiet=quiet, as_json=as_json)
    records = [outcome.record for outcome in outcomes if outcome.record is not None]
    if records and not as_json:
        tell(_summary(records))
    return conclude(outcomes)


def run_and_show(
    trials: Sequence[Trial],
    place: Executor,
    jobs: int,
    *,
    quiet: bool,
    as_json: bool,
    also: Watcher | None = None,
    lines_per_run: int = 10,
    records_suffice: bool = False,
) -> list[Outcome]:
    """Run trials and show them as they go; ``also`` is told the same. See ``run_trials`` for ``records_suffice``."""
    with ExitStack() as stack:
        stack.enter_context(last_words())
        view: Watcher
        if as_json:
            view = Json()
        elif sys.stdout.isatty() and not quiet:
            view = Live(stack.enter_context(_new_bars()), len(trials))
        else:
            view = Lines(quiet=quiet, per_run=lines_per_run)
        try:
            watcher = Several(*([also] if also else []), view)
            return run_trials(trials, place, jobs=jobs, watcher=watcher, records_suffice=records_suffice)
        except KeyboardInterrupt:
            typer.echo("stopped at once; the last checkpoints count", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            typer.echo("nobody reads the output any more; all is saved; rerun the same command to resume", err=True)
            raise typer.Exit(INTERRUPTED) from None


def conclude(outcomes: Sequence[Outcome]) -> int:
    """Report runs that failed, were interrupted or were restarted, and return the exit code."""
    moved = [outcome.trial.label for outcome in outcomes if outcome.retries]
    if moved:
        what = f"{len(moved)} of {len(outcomes)} runs lost their process and went on from a checkpoint"
        typer.echo(f"note: {what}: {'; '.join(moved)}", err=True)
    failed = [outcome.trial.label for outcome in outcomes if outcome.status == "failed"]
    open_ones = [outcome for outcome in outcomes if outcome.status not in ("failed", "done")]
    if open_ones:
        what = f"{len(open_ones)} of {len(outcomes)} runs are not finished"
        typer.echo(f"{what}, and saved where they stood; rerun the same command to resume", err=True)
    if failed:
        typer.echo(f"error: {len(failed)} of {len(outcomes)} runs failed: {'; '.join(failed)}; see above", err=True)
        return FAILED
    return INTERRUPTED if open_ones else 0


class Several(Watcher):
    """Tells each of several watchers, in their order."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def heard(self, news: News) -> None:
        """See :class:`Watcher`."""
        for watcher in self._watchers:
            watcher.heard(news)

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        """See :class:`Watcher`."""
        for watcher in self._watchers:
            watcher.changed(outcomes)


class Json(Watcher):
    """One JSON object per event, with the tags of its run."""

    def heard(self, news: News) -> None:
        """See :class:`Watcher`."""
        if news.ending in ("failed", "interrupted"):
            tell(json.dumps({**news.trial.tags, "event": news.ending, "error": news.error}))
        elif news.event.get("event") == "complaint":
            _complain(news)
        elif news.event and news.event["event"] != "progress":
            tell(json.dumps({**news.trial.tags, **news.event}))


class Pace:
    """How much of the work is done, and how long the rest will take at the pace so far.

    >>> pace = Pace()
    >>> pace.move("a", 0.5)  # from the checkpoint of another day
    >>> pace.move("a", 0.75)
    >>> pace.left(num_open=2, seconds=10)  # a quarter of a run in 10 seconds; 1.25 runs are left
    50.0
    """

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}
        self._begun_at: dict[str, float] = {}

    def move(self, key: str, share: float) -> None:
        """Note how far a run is."""
        self._begun_at.setdefault(key, share)
        self.shares[key] = share

    def left(self, num_open: int, seconds: float) -> float | None:
        """Return the seconds left for ``num_open`` runs, those of this pace included, after so many seconds."""
        done = sum(self.shares.values())
        gained = done - sum(self._begun_at.values())
        return seconds * (num_open - done) / gained if gained > 0 else None


class _Following(Watcher):
    """What bars and lines have in common: they know how far each run is and how many are over."""

    def __init__(self) -> None:
        self.pace = Pace()
        self._started = time.monotonic()
        self._num_open: int | None = None
        self.standing = ""

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        over = sum(outcome.status in ("done", "failed", "interrupted") for outcome in outcomes)
        if self._num_open is None:  # those that were finished before took none of our time
            self._num_open = len(outcomes) - over
        left = self.pace.left(self._num_open, time.monotonic() - self._started)
        self.standing = f"{over} of {len(outcomes)} runs"
        if left is not None and over < len(outcomes):
            self.standing += f", about {duration(left)} left"

    def follow(self, news: News) -> None:
        """Note how far a run is, if that is the news."""
        epochs, kind = news.trial.spec.epochs, news.event.get("event")
        if news.ending is not None and news.trial.id in self.pace.shares:
            self.pace.move(news.trial.id, 1.0)
        elif kind in ("started", "epoch"):
            self.pace.move(news.trial.id, news.event["epoch"] / epochs)
        elif kind == "progress":
            self.pace.move(news.trial.id, (news.event["epoch"] + news.event["share"]) / epochs)


class Lines(_Following):
    """A few lines per run, and one for its end; only warnings and errors if ``quiet``."""

    def __init__(self, *, quiet: bool = False, per_run: int = 10) -> None:
        super().__init__()
        self._quiet = quiet
        self._per_run = per_run
        self._parts: dict[str, int] = {}

    def heard(self, news: News) -> None:
        """See :class:`Watcher`."""
        self.follow(news)
        label, event = news.trial.label, news.event
        if event.get("event") in ("complaint", "retry"):
            _complain(news)
        elif self._quiet:
            return
        elif event.get("event") == "done":
            tell(f"{label}: {_result(event)}")
        elif news.ending is not None:
            tell(f"{label}: {news.ending}; {self.standing}")
        elif event["event"] == "message":
            tell(f"{label}: {event['text']}")
        elif event["event"] == "epoch" and self._is_next_part(news.trial, event["epoch"]):
            tell(f"{label}: {_epoch_line(news)}")

    def _is_next_part(self, trial: Trial, epoch: int) -> bool:
        part = epoch * self._per_run // trial.spec.epochs
        before, self._parts[trial.id] = self._parts.get(trial.id, 0), part
        return part > before


class Live(_Following):
    """A bar over everything and one per run under way, with results and messages above them."""

    def __init__(self, bars: "Bars", num_trials: int) -> None:
        super().__init__()
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._whole = bars.add_task("all", total=num_trials, now="")
        self._num_done = 0

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        """See :class:`Watcher`."""
        super().changed(outcomes)
        for outcome in outcomes:
            key = outcome.trial.id
            if outcome.status == "running" and key not in self._tasks:
                self._tasks[key] = self._bars.add_task(outcome.trial.label, total=1, now="starting")
            elif outcome.status != "running" and key in self._tasks:
                self._bars.remove_task(self._tasks.pop(key))
        # Runs from before do not appear in the pace.
        self._num_done = sum(
            outcome.status == "done" and outcome.trial.id not in self.pace.shares for outcome in outcomes
        )
        self._refresh_whole(len(outcomes))

    def heard(self, news: News) -> None:
        """See :class:`Watcher`."""
        self.follow(news)
        key, event = news.trial.id, news.event
        if news.ending in ("failed", "interrupted"):
            self._print(f"{news.trial.label}: {news.ending}")
        elif event.get("event") in ("message", "complaint", "retry"):
            self._print(f"{news.trial.label}: {event['text']}")
        elif event.get("event") == "done":
            self._print(f"{news.trial.label}: {_result(event)}")
        elif key in self._tasks and key in self.pace.shares:
            now: dict[str, Any] = {"now": _epoch_line(news)} if event.get("event") == "epoch" else {}
            self._bars.update(self._tasks[key], completed=self.pace.shares[key], **now)
        self._refresh_whole()

    def _refresh_whole(self, total: int | None = None) -> None:
        done = self._num_done + sum(self.pace.shares.values())
        self._bars.update(self._whole, completed=done, total=total, now=self.standing)

    def _print(self, text: str) -> None:
        self._bars.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _complain(news: News) -> None:
    typer.echo(f"{news.trial.label}: {news.event['text']}", err=True)


def _epoch_line(news: News) -> str:
    return f"epoch {news.event['epoch']}/{news.trial.spec.epochs}  {describe_row(from_json(Row, news.event))}"


def _result(event: Mapping[str, Any]) -> str:
    final, best = (from_json(Row, event[name]) for name in ("final", "best"))
    return f"test {show_figure(final.test)}, at best {show_figure(best.test)}; {event['folder']}"


def _summary(records: Sequence[RunRecord]) -> str:
    last, best = (MeanFigure.of(record.figures[key] for record in records) for key in ("test", "best"))
    return f"test over {len(records)} seed(s), mean ± standard deviation: last epoch {last}, best epoch {best}"


def _new_bars() -> "Bars":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TextColumn("{task.fields[now]}", markup=False),
    )
    return Progress(*columns, console=Console())
