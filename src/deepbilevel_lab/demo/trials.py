"""Many runs side by side in processes of one thread each, with their progress as it happens."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event

from deepbilevel_lab.demo.training import Curve, Method, Setting, train

_PATIENCE_SECONDS = 0.1


class _StoppedError(Exception):
    """The parent process wants no more."""


def run_trials(
    setting: Setting, trials: Sequence[tuple[Method, int]], *, jobs: int, on_epoch: Callable[[Method], None]
) -> list[Curve]:
    """Train each ``(method, seed)`` and return their curves in the same order; interrupting stops all processes."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that has used torch's threads may hang
    finished_epochs: SimpleQueue[Method] = context.SimpleQueue()
    stop = context.Event()
    with ProcessPoolExecutor(jobs, context, _initialize, (finished_epochs, stop)) as pool:
        try:
            # Ctrl-C reaches all processes; the parent answers for them. What is ignored while a process is started it
            # ignores from its first moment, even while it still imports.
            answer = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                futures = [pool.submit(_run, method, seed, setting) for method, seed in trials]
            finally:
                signal.signal(signal.SIGINT, answer)
            waiting: set[Future[Curve]] = set(futures)
            while waiting:
                done, waiting = wait(waiting, _PATIENCE_SECONDS, FIRST_COMPLETED)
                while not finished_epochs.empty():
                    on_epoch(finished_epochs.get())
                for future in done:
                    future.result()  # a failed run ends the whole at once
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]


def _initialize(finished_epochs: "SimpleQueue[Method]", stop: Event) -> None:
    global _finished_epochs, _stop  # a pool hands its queues to its processes in no other way
    _finished_epochs, _stop = finished_epochs, stop


def _run(method: Method, seed: int, setting: Setting) -> Curve:
    def on_epoch() -> None:
        parent = multiprocessing.parent_process()
        if parent is None or not parent.is_alive():
            os._exit(1)  # the parent was killed: nobody is left to report to, or to wait for
        _finished_epochs.put(method)
        if _stop.is_set():
            raise _StoppedError

    return train(method, seed, setting, on_epoch)
