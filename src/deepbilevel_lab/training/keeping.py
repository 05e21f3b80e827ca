"""What a run keeps in its folder: checkpoints, steps and metrics of each epoch, its record, and at the end the network.

Of the processes that share a run one keeps, and the others hold a :class:`NoKeeper`; so whoever drives the loop need
not know which one it is.
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepbilevel_lab.records import RunRecord, Status
from deepbilevel_lab.replacement import remove_leftovers, write_text
from deepbilevel_lab.specs import to_plain
from deepbilevel_lab.training.checkpoints import Checkpoints
from deepbilevel_lab.training.events import Events
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.inputs import encoding_of
from deepbilevel_lab.training.loop import TrainingLoop
from deepbilevel_lab.training.model_card import write_card
from deepbilevel_lab.training.model_file import save_model
from deepbilevel_lab.training.record import make_record
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.step_log import write_steps


class NoKeeper:
    """Keeps nothing: another process does."""

    last_saved: str | None = None
    """Where the last sound checkpoint is."""

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Return step and state of the newest sound checkpoint, if there is one."""
        return None

    def begin(self, loop: TrainingLoop) -> None:
        """Note that the run has begun, or goes on."""

    def save(self, loop: TrainingLoop) -> None:
        """Write a checkpoint."""

    def keep_steps(self, loop: TrainingLoop) -> None:
        """Write the steps of the epoch that is over; before the checkpoint, which says that they are there."""

    def add_epoch(self, loop: TrainingLoop) -> None:
        """Write what the epoch has brought."""

    def note_end(self, loop: TrainingLoop, status: Status, error: str | None = None) -> None:
        """Note how a run ended that did not finish; on a full disk even this may fail, and is left out."""

    def finish(self, loop: TrainingLoop) -> RunRecord:
        """Write the network, its card and the record, and return the record."""
        raise NotImplementedError("only the process that keeps is asked for it")

    def close(self) -> None:
        """Finish open files."""


class Keeper(NoKeeper):
    """Keeps everything.

    Args:
        folder: of the run, and locked.
        spec: the run.
        data_dir: where published data sets lie.
        say: is told what a person should know, a checkpoint that is passed over for instance.
    """

    def __init__(self, folder: RunFolder, spec: RunSpec, data_dir: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._data_dir = data_dir
        self._say = say
        self._checkpoints = Checkpoints(folder.checkpoints, on_damaged=self._tell_damaged)
        self._events: Events | None = None
        remove_leftovers(folder.path)
        remove_leftovers(folder.steps)
        write_text(folder.spec_file, json.dumps(to_plain(spec), indent=2) + "\n")

    def load(self) -> tuple[int, dict[str, Any]] | None:
        """Read the newest sound checkpoint."""
        latest = self._checkpoints.load_latest()
        if latest is not None:
            self.last_saved = f"{self._folder.checkpoints}, step {latest[0]}"
        return latest

    def begin(self, loop: TrainingLoop) -> None:
        """Write the record and the events so far."""
        self._record(loop, "running")
        self._events = Events(self._folder.events, loop.history, self._say)

    def save(self, loop: TrainingLoop) -> None:
        """Write a checkpoint, whole or not at all."""
        step = loop.epoch * loop.parts.groups.num_groups + loop.group
        self.last_saved = str(self._checkpoints.save(step, loop.state_dict()))

    def keep_steps(self, loop: TrainingLoop) -> None:
        """Write a file for the epoch."""
        write_steps(self._folder.steps, loop.history[-1].epoch, loop.finished_steps)

    def add_epoch(self, loop: TrainingLoop) -> None:
        """Write its metrics."""
        self._record(loop, "running")
        assert self._events is not None
        self._events.add(loop.history[-1])

    def note_end(self, loop: TrainingLoop, status: Status, error: str | None = None) -> None:
        """Write the record, if disk and memory let us."""
        with contextlib.suppress(OSError, MemoryError):
            self._record(loop, status, error)

    def finish(self, loop: TrainingLoop) -> RunRecord:
        """Write the record last: it says that all is there."""
        parts = loop.parts
        data = parts.train.data
        save_model(self._folder.model_file, parts.result, data.class_names, parts.spec, encoding_of(data))
        if parts.audit is not None:
            parts.audit.save(self._folder.audit_file, parts.train.data.class_names, parts.spec)
        record = make_record(loop, "done", self._data_dir)
        write_text(self._folder.card_file, write_card(parts, record))
        self._folder.write_record(record)
        return record

    def close(self) -> None:
        """Finish the events."""
        if self._events is not None:
            self._events.close()

    def _record(self, loop: TrainingLoop, status: Status, error: str | None = None) -> None:
        self._folder.write_record(make_record(loop, status, self._data_dir, error=error))

    def _tell_damaged(self, path: Path, reason: str) -> None:
        self._say(f"{path} is damaged ({reason}) and passed over; the checkpoint before it is used")
