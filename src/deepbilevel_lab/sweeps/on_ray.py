"""Trials on a Ray cluster: an actor with the run's CPUs and GPUs holds each, and another one goes on if that is lost.

The only file that knows Ray. What the actor does on its node is in ``remote_run.py``; the run itself is the ordinary
command, so its results are those of this machine.
"""

import logging
import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from queue import Queue
from threading import Lock, Thread
from types import TracebackType
from typing import Any

import deepbilevel_lab
from deepbilevel_lab.specs import canonical_json
from deepbilevel_lab.sweeps.local import InFolder, make_news, name_code
from deepbilevel_lab.sweeps.marks import standing_mark
from deepbilevel_lab.sweeps.remote_run import Order, RemoteRun
from deepbilevel_lab.sweeps.tied_command import End
from deepbilevel_lab.sweeps.trials import News, Trial
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.spec import RunSpec

NUM_RETRIES = 3
_CALLS_AT_ONCE = 4  # a stop must be heard while another call waits for news
_STORE_BYTES = 100 * 2**20  # of a cluster that is ours; news are small, and Ray would take a third of the memory
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # or a call after the end would start a cluster of its own
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # or it warns that it will be so one day
}
# Or a worker whose driver is gone kills its run; left alone, the run notices the closed pipe, saves and ends.
_ENVIRONMENT_OF_ACTORS = {"RAY_kill_child_processes_on_worker_exit": "0"}
_JOIN_SECONDS = 10.0


class RayCluster(InFolder):
    """An executor, to be used in a ``with``; see :class:`~deepbilevel_lab.sweeps.trials.Executor`.

    Args:
        address: of the cluster's head, ``host:port``; if it is None, that of ``RAY_ADDRESS``, or else a cluster of this
            machine alone is started, and ends with the ``with``.
        out: the folder of runs, which all nodes must share.
        data_dir: where data sets stand, on all nodes.
        workers: processes of a run that decode image files.
    """

    def __init__(self, address: str | None, out: Path, data_dir: Path, *, workers: int = 0) -> None:
        super().__init__(out.resolve(), data_dir.resolve(), workers=workers)
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._data_dir = str(data_dir.resolve()) if data_dir.exists() else None
        self._jobs: list[RayJob] = []
        self._missed: set[tuple[int, int]] = set()

    def __enter__(self) -> "RayCluster":
        environment = dict(_ENVIRONMENT)
        if self._address is not None:
            # How often it tries to connect, which takes it 40 seconds if nobody answers; 20 times by default.
            environment["RAY_NUM_REDIS_GET_RETRIES"] = "1"
        elif "RAY_AUTH_MODE" not in os.environ:
            # A key of its own keeps others out. Ray would leave one in the user's home, which changes later clusters.
            environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        with ExitStack() as stack:
            stack.enter_context(_default_environment(environment))
            self._connect()
            stack.callback(self._ray.shutdown)
            self._mark = stack.enter_context(standing_mark(self.out))
            self._stack = stack.pop_all()
        return self

    def _connect(self) -> None:
        self._ray = _import_ray()
        own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _STORE_BYTES}
        try:
            self._ray.init(
                address=self._address or "local",
                log_to_driver=False,
                logging_level=logging.CRITICAL,
                **(own if self._address is None else {}),
            )
        except (RuntimeError, ValueError, OSError) as error:
            raise ConnectionError(
                f"no Ray cluster answers at {self._address or 'this machine'} ({error}); `ray start --head` prints the "
                "address when it starts one, HOST:PORT, and the command must be run on a node of it, with the same "
                "versions of Python and ray"
            ) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._stack:  # whatever a second Ctrl-C interrupts
            for job in self._jobs:
                job.kill()
            for job in self._jobs:
                job.thread.join(_JOIN_SECONDS)

    def start(self, trial: Trial, news: "Queue[News]") -> "RayJob":
        """Let Ray find room for it."""
        self._look_for_room(trial, news)
        job = RayJob(self, trial, news)
        self._jobs.append(job)
        job.begin()
        return job

    def make_actor(self, spec: RunSpec) -> Any:
        """Return a process somewhere in the cluster that will hold a run; it may have to wait for room."""
        cpus, gpus = _needs(spec)
        options: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0}
        options |= {"max_concurrency": _CALLS_AT_ONCE, "runtime_env": {"env_vars": _ENVIRONMENT_OF_ACTORS}}
        return self._ray.remote(RemoteRun).options(**options).remote()

    def end_actor(self, actor: Any) -> None:
        """End such a process, or let it wait no longer."""
        with suppress(Exception):  # gone already
            self._ray.kill(actor)

    def ask(self, answer: Any) -> Any:
        """Wait for what an actor answers."""
        return self._ray.get(answer)

    def make_order(self, spec: RunSpec, *, again: bool) -> Order:
        """Return what a node needs to know of a run."""
        return Order(
            spec=canonical_json(spec),
            options=(*self._options, *name_code(spec)),
            folder=str(RunFolder.of(spec, self.out).path),
            mark=str(self._mark),
            data_dir=self._data_dir,
            version=deepbilevel_lab.__version__,
            again=again,
        )

    def _look_for_room(self, trial: Trial, news: "Queue[News]") -> None:
        """Say once if no node could ever hold such a run: Ray would wait for one without a word."""
        cpus, gpus = _needs(trial.spec)
        nodes: list[Mapping[str, float]] = [each["Resources"] for each in self._ray.nodes() if each["Alive"]]
        if (cpus, gpus) in self._missed or any(
            each.get("CPU", 0) >= cpus and each.get("GPU", 0) >= gpus for each in nodes
        ):
            return
        self._missed.add((cpus, gpus))
        text = f"no node of the cluster has the {cpus} CPUs and {gpus} GPUs of a run; use fewer --threads"
        if self._address is None:
            raise ValueError(text)
        news.put(News(trial, {"event": "complaint", "text": f"{text}, or wait until one joins"}))


class RayJob:
    """A job; see :class:`~deepbilevel_lab.sweeps.trials.Job`."""

    def __init__(self, cluster: RayCluster, trial: Trial, news: "Queue[News]") -> None:
        self.queued = True
        self.thread = Thread(target=self._follow, daemon=True)
        self._cluster, self._trial, self._news = cluster, trial, news
        self._lock = Lock()
        self._actor: Any = None
        self._stopped = False

    def begin(self) -> None:
        """Queue it; here and not in its thread, so that runs are queued in the order in which they are started."""
        self._actor = self._cluster.make_actor(self._trial.spec)
        self.thread.start()

    def stop(self) -> None:
        """Ask it to save and end; what still waits for room just ends."""
        with self._lock:
            self._stopped = True
            if self._actor is not None and not self.queued:
                self._actor.stop.remote()
                return
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        with self._lock:
            self._stopped = True
            self._release()

    def _follow(self) -> None:
        retries = 0
        while True:
            end = self._attempt(again=retries > 0)
            if end.ending == "interrupted" and not self._stopped:  # by whoever empties that node
                end = End("failed", "its process was told to end", killed=True)
            if not end.killed or self._stopped or retries == NUM_RETRIES:
                break
            retries += 1
            text = f"{end.error}; resuming from its checkpoint, retry {retries} of {NUM_RETRIES}"
            self._tell({"event": "retry", "number": retries, "text": text})
        if end.killed:
            tried = f" (after {retries} retries)" if retries else ""
            end = End("interrupted") if self._stopped else replace(end, error=f"{end.error}{tried}")
        self._tell(end)

    def _attempt(self, *, again: bool) -> End:
        """Return how one process fared with it."""
        from ray.exceptions import RayError, RayTaskError

        try:
            with self._lock:
                if self._stopped:
                    return End("interrupted")
                if self._actor is None:
                    self.queued = True
                    self._actor = self._cluster.make_actor(self._trial.spec)
                actor = self._actor
            self._cluster.ask(actor.begin.remote(self._cluster.make_order(self._trial.spec, again=again)))
            self.queued = False
            while True:
                for said in self._cluster.ask(actor.hear.remote()):
                    if isinstance(said, End):
                        return said
                    self._tell(said)
        except RayTaskError as error:  # said on the node, and would be said again
            return End("failed", _refusal(error))
        except RayError:
            return End("failed", "its process or node was lost", killed=True)
        except Exception as error:  # whatever else: who waits for the end of this run must hear of it
            return End("failed", f"Ray failed with {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._release()

    def _release(self) -> None:
        """Give its room back; whatever still runs there ends."""
        actor, self._actor = self._actor, None
        if actor is not None:
            self._cluster.end_actor(actor)

    def _tell(self, said: dict[str, Any] | End) -> None:
        self._news.put(make_news(self._trial, said))


def _needs(spec: RunSpec) -> tuple[int, int]:
    return spec.threads, int(spec.device == "cuda")


def _refusal(error: Any) -> str:
    cause = error.cause
    if isinstance(cause, (OSError, ValueError)):
        return str(cause)
    lines = str(cause).strip().splitlines() or [repr(cause)]
    return f"a node cannot run it: {lines[-1]}; install the same deepbilevel on every node"


@contextmanager
def _default_environment(variables: Mapping[str, str]) -> Generator[None]:
    """Set the variables that are not set yet, and remove them in the end: later processes must not inherit them."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("--on ray needs Ray; run: pip install 'deepbilevel[ray]'") from error
    # Otherwise it prints to our screen whenever a worker dies. There is no public way to have it silent.
    worker: Any = import_module("ray._private.worker")
    worker._worker_logs_enabled = False
    return ray
