"""Ctrl-C, SIGTERM and a closed terminal as a wish, granted at the next good moment; a second Ctrl-C does not wait."""

import signal
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was asked to stop, and has saved where it stands."""


class Interruption(AbstractContextManager["Interruption"]):
    """Listens for signals while it is entered; outside the main thread, where Python hears none, it hears none.

    Within another one it has that one's wish, and hands its own on: what follows a run that was just at its end, when
    it was asked to stop, is then not begun.

    Args:
        patient: a second Ctrl-C is no more than the first. For processes that torchrun has started: it passes on the
            signals that it gets, which a process may have got already.

    Attributes:
        requested: whether the run should stop.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.requested = False
        self._patient = patient
        self._impatient = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interruption":
        try:
            for each in _SIGNALS:
                if signal.getsignal(each) is not signal.SIG_IGN:  # as in the background Ctrl-C, and SIGHUP under nohup
                    self._before[each] = signal.signal(each, self._hear)
        except ValueError:  # not the main thread
            self._before = {}
        self.requested |= any(outer.requested for outer in self._outer())
        return self

    def __exit__(self, *error: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)
        for outer in self._outer():
            outer.requested |= self.requested

    def _outer(self) -> "list[Interruption]":
        listeners = (getattr(before, "__self__", None) for before in self._before.values())
        return [each for each in listeners if isinstance(each, Interruption)]

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT and not self._impatient and not self._patient:
            self._impatient = True  # once: a third one must not cut off what the second one set going
            raise KeyboardInterrupt
        self.requested = True
