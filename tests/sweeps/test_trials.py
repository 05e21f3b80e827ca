"""Driving trials, in an executor that is not the usual one: threads of this process that train for real."""

import os
import signal
from queue import Queue
from threading import Event, Lock, Thread

import pytest

from deepbilevel_lab.records import to_json
from deepbilevel_lab.sweeps.trials import News, Trial, Watcher, run_trials
from deepbilevel_lab.training import DivergedError, Interrupted, Listener, RunFolder, train
from tests.cli.trained import make_spec

SMALL = {"method": "sgd", "data.limit": 64, "data.test_limit": 20, "group.num_batches": 2, "group.batch_size": 8}


class Threads:
    """An executor without processes."""

    def __init__(self, out):
        self.out, self.started, self.at_once, self.most_at_once = out, [], 0, 0

    def find_record(self, spec):
        return RunFolder.of(spec, self.out).read_record()

    def find_finished(self, spec, *, network):
        folder = RunFolder.of(spec, self.out)
        record = folder.read_record()
        done = record is not None and record.status == "done"
        return record if folder.finished() or (done and not network) else None

    def place_of(self, spec):
        return str(RunFolder.of(spec, self.out).path)

    def start(self, trial, news):
        job = ThreadJob(self, trial, news)
        self.started.append(trial.label)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        job.start()
        return job


class ThreadJob(Thread):
    queued = False

    def __init__(self, place, trial, news):
        super().__init__(daemon=True)
        self.place, self.trial, self.news, self.stopped, self.killed = place, trial, news, Event(), False

    def run(self):
        ending, error = "done", None
        try:
            train(self.trial.spec, out=self.place.out, data_dir=self.place.out, listener=self.listener())
        except DivergedError as problem:
            ending, error = "failed", str(problem)
        except Interrupted:
            ending = "interrupted"
        self.place.at_once -= 1
        self.news.put(News(self.trial, ending=ending, error=error))

    def listener(job):  # noqa: N805
        class Telling(Listener):
            def epoch(self, row):
                job.news.put(News(job.trial, {"event": "epoch", **to_json(row)}))
                if job.trial.label == "endless":
                    job.stopped.wait()
                    raise Interrupted

        return Telling()

    def stop(self):
        self.stopped.set()

    def kill(self):
        self.killed = True
        self.stopped.set()


class Remembering(Watcher):
    def __init__(self):
        self.news, self.standing = [], []

    def heard(self, news):
        self.news.append((news.trial.label, news.event.get("event"), news.ending))

    def changed(self, outcomes):
        self.standing.append([outcome.status for outcome in outcomes])


def make_trials(*labels, **settings):
    special = {"diverges": {"optimizer.lr": 1e30}, "endless": {"epochs": 1000}}
    return [
        Trial(label, make_spec(**{**SMALL, "seed": number, **settings, **special.get(label, {})}))
        for number, label in enumerate(labels)
    ]


def test_all_run_so_many_at_a_time_and_come_back_with_their_records(tmp_path):
    place, watcher = Threads(tmp_path), Remembering()
    trials = make_trials("a", "b", "c")
    outcomes = run_trials(trials, place, jobs=2, watcher=watcher)
    assert place.most_at_once == 2
    assert [(outcome.trial, outcome.status, outcome.error) for outcome in outcomes] == [
        (trial, "done", None) for trial in trials
    ]
    assert [outcome.record.id for outcome in outcomes] == [trial.id for trial in trials]
    assert watcher.standing[0] == ["waiting"] * 3
    assert watcher.standing[-1] == ["done"] * 3
    assert ["running", "running", "waiting"] in watcher.standing
    assert {news for news in watcher.news if news[0] == "a"} == {("a", "epoch", None), ("a", None, "done")}


def test_what_is_finished_is_told_and_not_run_again(tmp_path):
    [first, second] = make_trials("a", "b")
    run_trials([first], Threads(tmp_path), jobs=1, watcher=Watcher())
    place, watcher = Threads(tmp_path), Remembering()
    outcomes = run_trials([first, second], place, jobs=1, watcher=watcher)
    assert place.started == ["b"]
    assert [outcome.status for outcome in outcomes] == ["done", "done"]
    assert watcher.news[0] == ("a", "done", "done")


def test_one_failure_does_not_stop_the_others_and_is_not_forgotten(tmp_path):
    outcomes = run_trials(make_trials("diverges", "b"), Threads(tmp_path), jobs=1, watcher=Watcher())
    assert [outcome.status for outcome in outcomes] == ["failed", "done"]
    assert "Try a smaller optimizer.lr" in outcomes[0].error
    assert outcomes[0].record is None


def test_the_same_spec_twice_is_one_run(tmp_path):
    place = Threads(tmp_path)
    [trial] = make_trials("a")
    outcomes = run_trials([trial, Trial("again", trial.spec)], place, jobs=2, watcher=Watcher())
    assert place.started == ["a"]
    assert len(outcomes) == 1


def test_a_run_whose_record_is_gone_counts_as_failed(tmp_path):
    class Forgetful(Threads):
        def find_record(self, spec):
            return None

    [outcome] = run_trials(make_trials("a"), Forgetful(tmp_path), jobs=1, watcher=Watcher())
    assert (outcome.status, outcome.error) == ("failed", "it ended well, but its record is gone")


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_those_that_run_and_begins_no_other(tmp_path, number):
    place = Threads(tmp_path)

    class Signalling(Watcher):
        def heard(self, news):
            if news.event.get("event") == "epoch":
                os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcomes = run_trials(make_trials("endless", "b"), place, jobs=1, watcher=Signalling())
    finally:
        signal.signal(signal.SIGINT, before)
    assert place.started == ["endless"]
    assert [outcome.status for outcome in outcomes] == ["interrupted", "waiting"]


def test_an_error_of_the_watcher_stops_what_runs_and_kills_nothing(tmp_path):
    jobs = []

    class Noting(Threads):
        def start(self, trial, news: Queue):
            jobs.append(super().start(trial, news))
            return jobs[-1]

    class Broken(Watcher):
        def heard(self, news):
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        run_trials(make_trials("endless"), Noting(tmp_path), jobs=1, watcher=Broken())
    assert [(job.stopped.is_set(), job.killed, job.is_alive()) for job in jobs] == [(True, False, False)]


class Narrow(Threads):
    """Takes all trials and has room for one at a time."""

    def __init__(self, out):
        super().__init__(out)
        self.room = Lock()

    def start(self, trial, news):
        job = QueuedJob(self, trial, news)
        job.start()
        return job

    def find_record(self, spec):
        self.room.release()  # asked once a run is known to have ended: no sooner do two of them stand there as running
        return super().find_record(spec)


class QueuedJob(ThreadJob):
    queued = True

    def run(self):
        while not self.place.room.acquire(timeout=0.01):
            if self.stopped.is_set():
                self.news.put(News(self.trial, ending="interrupted"))
                return
        self.queued = False
        self.place.started.append(self.trial.label)
        self.news.put(News(self.trial, {"event": "retry", "text": "lost"}))
        super().run()


def test_a_run_that_only_waits_for_room_is_not_called_running(tmp_path):
    watcher = Remembering()
    outcomes = run_trials(make_trials("a", "b", "c"), Narrow(tmp_path), jobs=3, watcher=watcher)
    assert [outcome.status for outcome in outcomes] == ["done"] * 3
    assert all(standing.count("running") <= 1 for standing in watcher.standing)
    assert any(sorted(standing) == ["running", "waiting", "waiting"] for standing in watcher.standing)


@pytest.mark.parametrize("ending", ["interrupted", "failed"])
def test_a_run_that_was_over_when_its_process_met_a_bad_end_is_done(tmp_path, ending):
    class MeetingABadEnd(ThreadJob):
        def run(self):
            train(self.trial.spec, out=self.place.out, data_dir=self.place.out, listener=self.listener())
            self.news.put(News(self.trial, ending=ending, error="too late"))

    class Place(Threads):
        def start(self, trial, news):
            job = MeetingABadEnd(self, trial, news)
            job.start()
            return job

    watcher = Remembering()
    [outcome] = run_trials(make_trials("a"), Place(tmp_path), jobs=1, watcher=watcher)
    assert (outcome.status, outcome.error) == ("done", None)
    assert outcome.record.status == "done"
    assert watcher.news[-1] == ("a", None, "done")


def test_a_retry_is_told_and_counted(tmp_path):
    watcher = Remembering()
    [outcome] = run_trials(make_trials("a"), Narrow(tmp_path), jobs=1, watcher=watcher)
    assert (outcome.status, outcome.retries) == ("done", 1)
    assert watcher.news[0] == ("a", "retry", None)


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_a_signal_leaves_what_waits_for_room_waiting_without_a_word(tmp_path):
    place = Narrow(tmp_path)

    class Signalling(Remembering):
        def heard(self, news):
            super().heard(news)
            if news.event.get("event") == "epoch":
                os.kill(os.getpid(), signal.SIGTERM)

    watcher = Signalling()
    trials = [Trial("endless", make_spec(**{**SMALL, "seed": seed, "epochs": 1000})) for seed in range(3)]
    outcomes = run_trials(trials, place, jobs=3, watcher=watcher)
    assert sorted(outcome.status for outcome in outcomes) == ["interrupted", "waiting", "waiting"]
    assert [news for news in watcher.news if news[2] is not None] == [("endless", None, "interrupted")]


def make_needing(first, label="needing"):
    return Trial(label, make_spec(**SMALL, **{"network.weights": f"run:{first.id}", "seed": 9}))


def test_a_run_waits_for_the_run_it_needs_though_there_is_room_for_both(tmp_path):
    place = Threads(tmp_path)
    first, other = make_trials("first", "other")
    outcomes = run_trials([make_needing(first), first, other], place, jobs=3, watcher=Watcher())
    assert place.started == ["first", "other", "needing"]
    assert {outcome.status for outcome in outcomes} == {"done"}


def test_a_record_without_its_network_suffices_if_asked_and_nobody_needs_the_network(tmp_path):
    first, other = make_trials("first", "other")
    run_trials([first, other], Threads(tmp_path), jobs=1, watcher=Watcher())
    for trial in (first, other):
        RunFolder.of(trial.spec, tmp_path).model_file.unlink()  # as in a folder of exported records
    place = Threads(tmp_path)
    trials = [first, other, make_needing(first)]
    outcomes = run_trials(trials, place, jobs=1, watcher=Watcher(), records_suffice=True)
    assert place.started == ["first", "needing"]
    assert {outcome.status for outcome in outcomes} == {"done"}
    run_trials([other], place, jobs=1, watcher=Watcher())
    assert place.started == ["first", "needing", "other"]
    RunFolder.of(first.spec, tmp_path).model_file.unlink()  # which only a finished run would need
    run_trials(trials, place, jobs=1, watcher=Watcher(), records_suffice=True)
    assert place.started == ["first", "needing", "other"]


def test_a_run_whose_needs_cannot_be_met_fails_without_being_started(tmp_path):
    place = Threads(tmp_path)
    [first] = make_trials("diverges")
    last = Trial("last", make_spec(**SMALL, **{"network.weights": f"run:{make_needing(first).id}"}))
    watcher = Remembering()
    outcomes = run_trials([first, make_needing(first), last], place, jobs=1, watcher=watcher)
    assert watcher.standing[-1] == ["failed"] * 3  # what a record is written from
    assert watcher.news[-2:] == [("needing", None, "failed"), ("last", None, "failed")]
    assert place.started == ["diverges"]
    assert [outcome.status for outcome in outcomes] == ["failed"] * 3
    assert outcomes[1].error == "it needs diverges, which is failed"
    assert outcomes[2].error == "it needs needing, which is failed"
