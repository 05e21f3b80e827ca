"""The history of a run for TensorBoard. A log must never end a run: one that cannot be written is said and left out."""

import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from deepbilevel_lab.records import Row, to_json


class Events:
    """Writes a file of events; does nothing where TensorBoard is not installed.

    Killed processes leave rows in their files that the continued run will have again; therefore the old files go. Not
    by TensorBoard's own writer: its thread prints a traceback where a disk is full.

    Args:
        folder: of the events.
        history: rows of before.
        say: is told, once, why there will be no more events.
    """

    def __init__(self, folder: Path, history: Sequence[Row], say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._writer: Any = None
        try:  # by name: neither has annotations
            self._events: Any = import_module("tensorboard.compat.proto.event_pb2")
            records: Any = import_module("tensorboard.summary.writer.record_writer")
        except ImportError:
            return
        with self._never_failing():
            folder.mkdir(exist_ok=True)
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
            path = folder / f"events.out.tfevents.{time.time():.0f}.{os.getpid()}"
            self._writer = records.RecordWriter(path.open("xb"))
            self._write(file_version="brain.Event:2")
            for row in history:
                self.add(row)

    def add(self, row: Row) -> None:
        """Write one epoch."""
        with self._never_failing():
            values = {name: value for name, value in to_json(row).items() if name != "epoch" and value is not None}
            for name, value in values.items() if self._writer is not None else ():
                self._write(step=row.epoch, summary={"value": [{"tag": name, "simple_value": value}]})
            if self._writer is not None:
                self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        with self._never_failing():
            if self._writer is not None:
                self._writer.close()

    def _write(self, **content: Any) -> None:
        self._writer.write(self._events.Event(wall_time=time.time(), **content).SerializeToString())

    @contextmanager
    def _never_failing(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            self._writer = None
            self._say(f"no more events for TensorBoard: {self._folder} cannot be written ({error}); the run goes on")
