"""Trials, where they may run, and driving them to their ends. Knows no method, no process and no screen."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from queue import Empty, Queue
from typing import Any, Literal, Protocol

from deepbilevel_lab.records import RunRecord, to_json
from deepbilevel_lab.training.interruption import Interruption
from deepbilevel_lab.training.other_runs import needs
from deepbilevel_lab.training.spec import RunSpec

Status = Literal["waiting", "running", "interrupted", "failed", "done"]
Ending = Literal["done", "failed", "interrupted"]
_PATIENCE_SECONDS = 0.2


@dataclass(frozen=True)
class Trial:
    """A run with a label for people, and tags for programs."""

    label: str
    spec: RunSpec
    tags: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.spec.id


@dataclass
class Outcome:
    """How a trial stands.

    Attributes:
        record: of the run, once it is done.
        error: why it failed.
        killed: whether it did not fail by itself, but lost its process; the same command goes on with it.
        retries: how often it lost its process and went on in another one.
    """

    trial: Trial
    status: Status = "waiting"
    record: RunRecord | None = None
    error: str | None = None
    killed: bool = False
    retries: int = 0


@dataclass(frozen=True)
class News:
    """What was heard of a trial: an event of its run, a line of text, or its end.

    Attributes:
        event: as ``deepbilevel train --json`` says it; ``complaint`` with a ``text`` is what it wrote beside that,
            and ``retry`` says that it goes on elsewhere, and why.
        ending: what became of it, if it is over; ``error`` says why it failed, ``killed`` that it did not by itself.
    """

    trial: Trial
    event: dict[str, Any] = field(default_factory=dict[str, Any])
    ending: Ending | None = None
    error: str | None = None
    killed: bool = False


class Job(Protocol):
    """A trial under way."""

    @property
    def queued(self) -> bool:
        """Whether it still waits for room where it is to run."""
        ...

    def stop(self) -> None:
        """Ask it to save and end; its end is told like any other."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Executor(Protocol):
    """A place where trials run. It tells their news through the queue, the ending last and always."""

    def find_finished(self, spec: RunSpec, *, network: bool) -> RunRecord | None:
        """Return the record of a run that is finished, if its ``network`` is there or not asked for."""
        ...

    def find_record(self, spec: RunSpec) -> RunRecord | None:
        """Return the record of a run as it stands, or None if there is none."""
        ...

    def place_of(self, spec: RunSpec) -> str:
        """Return where the results of a run are."""
        ...

    def start(self, trial: Trial, news: "Queue[News]") -> Job:
        """Start a trial, or go on with it where it was stopped."""
        ...


class Watcher:
    """Is told what happens; this one does nothing with it."""

    def heard(self, news: News) -> None:
        """Tell an event, a complaint or an ending."""

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        """Tell that one of the trials has another status than before."""


class _Heeded(Watcher):
    """Tells a watcher what happens; one that fails is a wish to stop, for nobody may lose what runs on its account."""

    def __init__(self, watcher: Watcher, interruption: Interruption) -> None:
        self._watcher = watcher
        self._interruption = interruption
        self.error: Exception | None = None

    def heard(self, news: News) -> None:
        with self._heeding():
            self._watcher.heard(news)

    def changed(self, outcomes: Sequence[Outcome]) -> None:
        with self._heeding():
            self._watcher.changed(outcomes)

    @contextmanager
    def _heeding(self) -> Generator[None]:
        try:
            yield
        except Exception as error:
            self._interruption.requested = True
            self.error = self.error or error


def run_trials(
    trials: Sequence[Trial], executor: Executor, *, jobs: int, watcher: Watcher, records_suffice: bool = False
) -> list[Outcome]:
    """Run all trials, ``jobs`` at a time, and return how they ended; one failure does not stop the others.

    What is finished is not run again. With ``records_suffice`` that includes runs of which only the record is there,
    such as those exported on another machine, unless one of the trials needs their network. A run that needs others
    waits for them. After Ctrl-C, SIGTERM or SIGHUP all that run are asked to save and end, and no other is begun; a
    second Ctrl-C kills them and raises ``KeyboardInterrupt``. The same happens after an error of the watcher, which is
    raised in the end. Two trials with the same spec are one run.
    """
    outcomes: dict[str, Outcome] = {}
    for trial in trials:
        outcomes.setdefault(trial.id, Outcome(trial))
    running: dict[str, Job] = {}
    asked: set[str] = set()
    news: Queue[News] = Queue()
    interruption = Interruption()
    watcher = heeded = _Heeded(watcher, interruption)
    networks = _needed_networks(outcomes, executor) if records_suffice else outcomes.keys()
    for outcome in outcomes.values():
        network = outcome.trial.id in networks
        if (record := executor.find_finished(outcome.trial.spec, network=network)) is not None:
            outcome.status, outcome.record = "done", record
            results = {"final": to_json(record.final), "best": to_json(record.best)}
            folder = executor.place_of(outcome.trial.spec)
            watcher.heard(News(outcome.trial, {"event": "done", "folder": folder, **results}, ending="done"))
    waiting = [outcome for outcome in outcomes.values() if outcome.status == "waiting"]
    with interruption, ExitStack() as stack:
        stack.callback(lambda: [job.kill() for job in running.values()])  # what an error or a second Ctrl-C leaves
        watcher.changed(list(outcomes.values()))
        while running or (waiting and not interruption.requested):
            if not interruption.requested:
                _give_up_blocked(waiting, outcomes, watcher)
            while len(running) < jobs and not interruption.requested:
                outcome = _take_ready(waiting, outcomes)
                if outcome is None:
                    break
                job = running[outcome.trial.id] = executor.start(outcome.trial, news)
                if not job.queued:
                    outcome.status = "running"
                    watcher.changed(list(outcomes.values()))
            for key in running.keys() - asked if interruption.requested else ():
                asked.add(key)
                running[key].stop()
            if not running:
                continue  # all that waited have been given up, or wait for what just was
            heard = _hear(news)
            if _note_queues(running, outcomes):
                watcher.changed(list(outcomes.values()))
            if heard is None:
                continue
            outcome = outcomes[heard.trial.id]
            if heard.ending is not None:
                job = running.pop(heard.trial.id)
                if heard.ending == "interrupted" and job.queued:
                    continue  # it never had room: it waits as those do that were never started
                heard = _settle(outcome, heard, executor)
                watcher.changed(list(outcomes.values()))
            outcome.retries += heard.event.get("event") == "retry"
            watcher.heard(heard)
    if heeded.error is not None:
        raise heeded.error
    return list(outcomes.values())


def _needed_networks(outcomes: Mapping[str, Outcome], executor: Executor) -> set[str]:
    """Return the runs whose network is needed by a run without a record, or by one that must be run for such a run."""
    networks: set[str] = set()
    begun = [each for each in outcomes.values() if executor.find_finished(each.trial.spec, network=False) is None]
    while begun:
        for needed in _needed(begun.pop(), outcomes):
            if needed.trial.id not in networks:
                networks.add(needed.trial.id)
                if executor.find_finished(needed.trial.spec, network=True) is None:
                    begun.append(needed)
    return networks


def _give_up_blocked(waiting: list[Outcome], outcomes: Mapping[str, Outcome], watcher: Watcher) -> None:
    """Let those fail whose needs can no longer be met, and those that need them in turn."""
    for outcome in list(waiting):
        lost = [each for each in _needed(outcome, outcomes) if each.status in ("failed", "interrupted")]
        if lost:
            waiting.remove(outcome)
            outcome.status, outcome.error = "failed", f"it needs {lost[0].trial.label}, which is {lost[0].status}"
            watcher.changed(list(outcomes.values()))
            watcher.heard(News(outcome.trial, ending="failed", error=outcome.error))


def _take_ready(waiting: list[Outcome], outcomes: Mapping[str, Outcome]) -> Outcome | None:
    """Take the first that has all it needs, if any has."""
    for outcome in waiting:
        if all(each.status == "done" for each in _needed(outcome, outcomes)):
            waiting.remove(outcome)
            return outcome
    return None


def _needed(outcome: Outcome, outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    return [outcomes[run_id] for run_id in needs(outcome.trial.spec) if run_id in outcomes]


def _hear(news: "Queue[News]") -> News | None:
    try:
        return news.get(timeout=_PATIENCE_SECONDS)
    except Empty:
        return None


def _note_queues(running: Mapping[str, Job], outcomes: Mapping[str, Outcome]) -> bool:
    """Tell those that run from those that wait for room, and return whether that is news."""
    before = [outcomes[key].status for key in running]
    for key, job in running.items():
        outcomes[key].status = "waiting" if job.queued else "running"
    return before != [outcomes[key].status for key in running]


def _settle(outcome: Outcome, heard: News, executor: Executor) -> News:
    """Note how a trial ended, and return the news as it is to be told."""
    if heard.ending != "done":
        # If its work was over, a signal or what else there was only met the end of the process.
        record = executor.find_finished(outcome.trial.spec, network=True)
        if record is not None:
            outcome.status, outcome.record = "done", record
            return replace(heard, ending="done", error=None)
    assert heard.ending is not None
    outcome.status, outcome.error, outcome.killed = heard.ending, heard.error, heard.killed
    if heard.ending == "done":
        outcome.record = executor.find_record(outcome.trial.spec)
        if outcome.record is None:
            outcome.status, outcome.error = "failed", "it ended well, but its record is gone"
    return heard
