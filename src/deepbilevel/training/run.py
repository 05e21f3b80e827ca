"""A run from its spec to its results, through kills, interruptions and full disks."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

from deepbilevel.replacement import remove_leftovers, write_text
from deepbilevel.specs import to_plain
from deepbilevel.training.build import Parts, build
from deepbilevel.training.checkpoints import Checkpoints
from deepbilevel.training.events import Events
from deepbilevel.training.folder import RunFolder
from deepbilevel.training.interruption import Interrupted, Interruption
from deepbilevel.training.loop import DivergedError, Progress, Row, TrainingLoop
from deepbilevel.training.model_card import write_card
from deepbilevel.training.model_file import save_model
from deepbilevel.training.other_runs import RunsBeside
from deepbilevel.training.record import make_record
from deepbilevel.training.spec import RunSpec
from deepbilevel.training.step_log import write_steps

SAVE_SECONDS = 60.0


class Listener:
    """What a run tells whoever watches it; this one watches nothing."""

    def message(self, text: str) -> None:
        """Say something a person should know."""

    def started(self, loop: TrainingLoop, folder: RunFolder) -> None:
        """Tell where a run begins, or goes on."""

    def progress(self, progress: Progress, loop: TrainingLoop) -> None:
        """Tell that a group was trained on or a batch evaluated."""

    def epoch(self, row: Row) -> None:
        """Tell the metrics of an epoch."""


def train(
    spec: RunSpec,
    *,
    out: Path,
    data_dir: Path,
    workers: int = 0,
    save_seconds: float = SAVE_SECONDS,
    resume: bool = True,
    listener: Listener | None = None,
) -> dict[str, Any]:
    """Train, or go on where the last process stopped, and return the record.

    Args:
        spec: the run.
        out: the folder of runs; this one gets a folder in it.
        data_dir: where published data sets lie.
        workers: processes that decode image files.
        save_seconds: how much work a kill may cost; a checkpoint is also written after every epoch.
        resume: go on with what is there; otherwise it is moved aside first.
        listener: is told what happens.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, with everything saved.
        DivergedError: if training stopped making sense.
        FolderInUseError: if another process is at it.
    """
    listener = listener or Listener()
    folder = RunFolder.of(spec, out)
    if not resume and (old := folder.move_aside()) is not None:
        listener.message(f"what was there is now in {old}")
    if (record := _finished(folder, listener)) is not None:
        return record
    with Interruption() as interruption:
        # Before the folder: what cannot be built, for want of data for instance, leaves nothing behind.
        parts = build(spec, data_dir, workers=workers, runs=RunsBeside(out, data_dir))
        with folder.locked():
            if (record := _finished(folder, listener)) is not None:  # by another process, while this one was built
                return record
            remove_leftovers(folder.path)
            remove_leftovers(folder.steps)
            write_text(folder.spec_file, json.dumps(to_plain(spec), indent=2) + "\n")
            return _Run(parts, folder, data_dir, save_seconds, listener).drive(interruption)


def _finished(folder: RunFolder, listener: Listener) -> dict[str, Any] | None:
    if not folder.finished():
        return None
    listener.message(f"{folder.path} is finished; nothing to do")
    return folder.read_record()


class _Run:
    """One process's part of a run."""

    def __init__(
        self, parts: Parts, folder: RunFolder, data_dir: Path, save_seconds: float, listener: Listener
    ) -> None:
        self._folder = folder
        self._data_dir = data_dir
        self._save_seconds = save_seconds
        self._listener = listener
        self._checkpoints = Checkpoints(folder.checkpoints, on_damaged=self._tell_damaged)
        self._loop = TrainingLoop(parts)
        self._last_saved: str | None = None
        latest = self._checkpoints.load_latest()
        if latest is not None:
            step, state = latest
            self._loop.load_state_dict(state)
            self._last_saved = f"{folder.checkpoints}, step {step}"
            listener.message(f"going on at epoch {self._loop.epoch + 1}, step {step}")

    def _tell_damaged(self, path: Path, reason: str) -> None:
        self._listener.message(f"{path} is damaged ({reason}) and passed over; the checkpoint before it is used")

    def drive(self, interruption: Interruption) -> dict[str, Any]:
        loop, listener = self._loop, self._listener
        self._record("running")
        listener.started(loop, self._folder)
        events = Events(self._folder.events, loop.history)
        last_save = time.monotonic()
        try:
            for progress in loop.run():
                if progress.stage == "epoch":
                    row = loop.history[-1]
                    write_steps(self._folder.steps, row["epoch"], loop.finished_steps)
                    self._save()
                    self._record("running")
                    events.add(row)
                    listener.epoch(row)
                    last_save = time.monotonic()
                else:
                    listener.progress(progress, loop)
                if interruption.requested and loop.epoch < loop.parts.spec.epochs:  # a run at its end rather ends
                    if progress.stage != "epoch":
                        self._save()
                    raise Interrupted(f"stopped at epoch {loop.epoch + 1}, saved; the same command goes on from there")
                if time.monotonic() - last_save > self._save_seconds:
                    self._save()
                    last_save = time.monotonic()
            return self._finish()
        except (Interrupted, KeyboardInterrupt):
            with contextlib.suppress(OSError):
                self._record("interrupted")
            raise
        except DivergedError as error:
            message = f"{error}. {self._good_checkpoint()} Try a smaller optimizer.lr, or look at those images"
            with contextlib.suppress(OSError):
                self._record("failed", message)
            raise DivergedError(message) from error
        except BaseException as error:
            # On a full disk even this may fail; the error itself is what has to be told.
            with contextlib.suppress(OSError):
                self._record("failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            events.close()

    def _save(self) -> None:
        self._loop.check_parameters()
        loop = self._loop
        step = loop.epoch * loop.parts.groups.num_groups + loop.group
        self._last_saved = str(self._checkpoints.save(step, loop.state_dict()))

    def _record(self, status: str, error: str | None = None) -> dict[str, Any]:
        record = make_record(self._loop, status, self._data_dir, error=error)
        self._folder.write_record(record)
        return record

    def _good_checkpoint(self) -> str:
        if self._last_saved is None:
            return "No checkpoint was written before."
        return f"The last good checkpoint is {self._last_saved}."

    def _finish(self) -> dict[str, Any]:
        parts = self._loop.parts
        save_model(self._folder.model_file, parts.model, parts.train.data.class_names, parts.spec)
        record = make_record(self._loop, "done", self._data_dir)
        write_text(self._folder.card_file, write_card(parts, record))
        self._folder.write_record(record)  # last: what says that all is there
        return record
