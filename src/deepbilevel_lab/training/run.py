"""A run from its spec to its results, through kills, interruptions and full disks; in one process or in several."""

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deepbilevel_lab.data import OwnData
from deepbilevel_lab.data.own_items import Items
from deepbilevel_lab.processes import find_processes
from deepbilevel_lab.records import Row, RunRecord
from deepbilevel_lab.training.build import Parts, build
from deepbilevel_lab.training.folder import FolderInUseError, RunFolder, find_run_on_other_data
from deepbilevel_lab.training.inputs import describe_columns, with_own_data
from deepbilevel_lab.training.interruption import Interrupted, Interruption
from deepbilevel_lab.training.keeping import Keeper, NoKeeper
from deepbilevel_lab.training.loop import DivergedError, Progress, TrainingLoop
from deepbilevel_lab.training.other_runs import RunsBeside
from deepbilevel_lab.training.own_rules import check_loaded
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.spreading import check_spread

SAVE_SECONDS = 60.0
_LOOK_SECONDS = 0.5


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


class _Heeded(Listener):
    """Tells a listener what happens; one that cannot be told is a wish to stop.

    Whoever started a sweep may be gone, and with it the pipe or the terminal: that is known here before a signal is.
    """

    def __init__(self, listener: Listener, interruption: Interruption) -> None:
        self._listener = listener
        self._interruption = interruption

    def message(self, text: str) -> None:
        with self._heeding():
            self._listener.message(text)

    def started(self, loop: TrainingLoop, folder: RunFolder) -> None:
        with self._heeding():
            self._listener.started(loop, folder)

    def progress(self, progress: Progress, loop: TrainingLoop) -> None:
        with self._heeding():
            self._listener.progress(progress, loop)

    def epoch(self, row: Row) -> None:
        with self._heeding():
            self._listener.epoch(row)

    @contextmanager
    def _heeding(self) -> Generator[None]:
        try:
            yield
        except OSError:
            self._interruption.requested = True


def train(
    spec: RunSpec,
    *,
    out: Path,
    data_dir: Path,
    workers: int = 0,
    save_seconds: float = SAVE_SECONDS,
    resume: bool = True,
    wait: bool = False,
    listener: Listener | None = None,
    data: Items | OwnData | None = None,
) -> RunRecord:
    """Train, or go on where the last process stopped, and return the record.

    Where ``torch.distributed`` is initialised, all its processes must call this alike, and share the run.

    Args:
        spec: the run.
        out: the folder of runs; this one gets a folder in it.
        data_dir: where published data sets lie.
        workers: processes that decode image files.
        save_seconds: how much work a kill may cost; a checkpoint is also written after every epoch.
        resume: go on with what is there; otherwise it is moved aside first.
        wait: for another process that is at it, to take its results or go on where it stops.
        listener: is told what happens; of several processes, that of the first.
        data: what to train on where ``spec.data`` is a ``dataset``; see :class:`~deepbilevel_lab.data.OwnData`.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM, SIGHUP or an ``OSError`` of the listener, with everything saved.
        DivergedError: if training stopped making sense.
        FolderInUseError: if another process is at it.
        LostProcessError: if one of several processes is gone, or does not answer.
        FailedElsewhereError: if another one of them raises why the run has failed.
    """
    check_loaded(spec.method)
    spec, own = with_own_data(spec, data)
    processes = find_processes()
    check_spread(spec, processes.size)
    interruption = Interruption(patient=processes.size > 1)
    listener = _Heeded(listener if listener is not None and processes.is_first else Listener(), interruption)
    folder = RunFolder.of(spec, out)

    def look() -> RunRecord | None:
        if not resume and (old := folder.move_aside()) is not None:
            listener.message(f"what was there is now in {old}")
        if not folder.path.exists() and (other := find_run_on_other_data(spec, out)) is not None:
            listener.message(f"the data has changed since {other}; this is another run, in a folder of its own")
        return _finished(folder, listener)

    with processes.explaining(), interruption, ExitStack() as stack:
        if (record := processes.ask_first(look)) is not None:
            return record
        # Before the folder: what cannot be built, for want of data for instance, leaves nothing behind.
        with processes.succeeding():
            spec.data.check_content()
            parts = build(spec, data_dir, workers=workers, runs=RunsBeside(out, data_dir), own=own)
        for note in (describe_columns(parts.train.data), *parts.notes):
            if note:
                listener.message(note)
        keeper = NoKeeper()

        def open_folder() -> RunRecord | None:
            nonlocal keeper
            stack.enter_context(_wait_for(folder, listener, interruption) if wait else folder.locked())
            if (record := _finished(folder, listener)) is not None:  # by another process, while this one was built
                return record
            keeper = Keeper(folder, spec, data_dir, listener.message)
            return None

        if (record := processes.ask_first(open_folder)) is not None:
            return record
        return _Run(parts, folder, keeper, save_seconds, listener).drive(interruption)


@contextmanager
def _wait_for(folder: RunFolder, listener: Listener, interruption: Interruption) -> Generator[None]:
    """Lock a folder, once whoever is at it has left."""
    told = False
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(folder.locked())
                break
            except FolderInUseError as error:
                if interruption.requested:
                    raise Interrupted(f"stopped while another process trained in {folder.path}") from error
                if not told:
                    listener.message(f"waiting for another process, which trains in {folder.path}")
                told = True
                time.sleep(_LOOK_SECONDS)
        yield


def _finished(folder: RunFolder, listener: Listener) -> RunRecord | None:
    if not folder.finished():
        return None
    listener.message(f"{folder.path} is finished; nothing to do")
    return folder.read_record()


class _Run:
    """One process's part of a run; all that share it drive it alike, and one of them keeps what comes of it."""

    def __init__(
        self, parts: Parts, folder: RunFolder, keeper: NoKeeper, save_seconds: float, listener: Listener
    ) -> None:
        self._folder = folder
        self._keeper = keeper
        self._save_seconds = save_seconds
        self._listener = listener
        self._processes = parts.processes
        self._loop = TrainingLoop(parts)
        latest = self._processes.ask_first(keeper.load)
        if latest is not None:
            step, state = latest
            with self._processes.succeeding():
                self._loop.load_state_dict(state)
            is_over = self._loop.epoch == parts.spec.epochs
            where = "after the last epoch" if is_over else f"at epoch {self._loop.epoch + 1}"
            listener.message(f"resuming {where}, step {step}")

    def drive(self, interruption: Interruption) -> RunRecord:
        loop, keeper = self._loop, self._keeper
        self._processes.ask_first(lambda: keeper.begin(loop))
        self._listener.started(loop, self._folder)
        try:
            with self._processes.explaining():
                self._train(interruption)
                return self._processes.ask_first(lambda: keeper.finish(loop))
        except Interrupted:
            keeper.note_end(loop, "interrupted")
            self._processes.agree(True)  # nobody leaves before all is saved: torchrun ends all when one has gone
            raise
        except KeyboardInterrupt:
            keeper.note_end(loop, "interrupted")
            raise
        except DivergedError as error:
            message = f"{error}. {self._good_checkpoint()} Try a smaller optimizer.lr, or look at those images"
            keeper.note_end(loop, "failed", message)
            raise self._processes.told_by_first(DivergedError(message)) from error
        except BaseException as error:
            keeper.note_end(loop, "failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            keeper.close()

    def _train(self, interruption: Interruption) -> None:
        loop = self._loop
        last_save = time.monotonic()
        for progress in loop.run():
            if progress.stage == "epoch":
                self._keeper.keep_steps(loop)
                self._save()
                self._keeper.add_epoch(loop)
                self._listener.epoch(loop.history[-1])
                last_save = time.monotonic()
            else:
                self._listener.progress(progress, loop)
            is_time = time.monotonic() - last_save > self._save_seconds
            stop, save = self._processes.agree(interruption.requested, is_time)
            if stop and loop.epoch < loop.parts.spec.epochs:  # a run at its end rather ends
                if progress.stage != "epoch":
                    self._save()
                raise Interrupted(f"stopped at epoch {loop.epoch + 1}, saved; rerun the same command to resume")
            if save:
                self._save()
                last_save = time.monotonic()

    def _save(self) -> None:
        self._loop.check_parameters()
        self._keeper.save(self._loop)

    def _good_checkpoint(self) -> str:
        if self._keeper.last_saved is None:
            return "No checkpoint was written before."
        return f"The last good checkpoint is {self._keeper.last_saved}."
