"""The folder of a run: what lies where in it, who may write to it, and how it is read again."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from deepbilevel_lab.records import FormatError, RunRecord, read_file, to_text
from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.spec_files import load_spec

_PATIENCE_SECONDS = 0.3  # somebody may be looking whether the lock is free


class FolderInUseError(RuntimeError):
    """Another process is training in this folder."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @classmethod
    def of(cls, spec: RunSpec, out: Path) -> "RunFolder":
        """Return the folder in which a run belongs.

        The id says which run it is, the name before it is for people: version 0.1 called ``exact``, ``k-fold`` and
        ``momentum`` ``bilevel``. A folder of that id that is there already is the one.
        """
        usual = out / f"{spec.name}-{spec.id}"
        return cls(usual if usual.exists() else next(out.glob(f"*-{spec.id}"), usual))

    @property
    def checkpoints(self) -> Path:
        """The last checkpoints."""
        return self.path / "checkpoints"

    @property
    def steps(self) -> Path:
        """What every step did, a file per epoch."""
        return self.path / "steps"

    @property
    def events(self) -> Path:
        """TensorBoard's files."""
        return self.path / "events"

    @property
    def spec_file(self) -> Path:
        """The spec, to be given to ``deepbilevel train --spec``."""
        return self.path / "spec.json"

    @property
    def record_file(self) -> Path:
        """Everything measured."""
        return self.path / "record.json"

    @property
    def model_file(self) -> Path:
        """The trained network."""
        return self.path / "model.safetensors"

    @property
    def audit_file(self) -> Path:
        """What the run has seen of every label, if it was asked to keep it."""
        return self.path / "audit.safetensors"

    @property
    def labels_file(self) -> Path:
        """What the trained network predicts for its training images, once another run has asked for it."""
        return self.path / "labels.npz"

    @property
    def card_file(self) -> Path:
        """What the network is, for people."""
        return self.path / "README.md"

    def finished(self) -> bool:
        """Whether the run is over and its results are all there."""
        record = self.read_record()
        return record is not None and record.status == "done" and self.model_file.is_file()

    def read_record(self) -> RunRecord | None:
        """Return the record, or None if there is none yet."""
        try:
            return read_file(RunRecord, self.record_file)
        except FileNotFoundError:
            return None
        except FormatError as error:
            raise FormatError(f"{self.record_file}: {error}") from error
        except ValueError as error:
            raise ValueError(
                f"{self.record_file} is damaged: {error}; put back a copy of it, or remove it and run the same "
                "command again"
            ) from error

    def write_record(self, record: RunRecord) -> None:
        """Replace the record."""
        write_text(self.record_file, to_text(record))

    def in_use(self) -> bool:
        """Whether a process is training here."""
        from filelock import FileLock, Timeout

        if not (self.path / ".lock").exists():
            return False
        try:
            with FileLock(self.path / ".lock", timeout=0):
                return False
        except (Timeout, OSError):  # a folder of somebody else: nothing says that the process is gone
            return True

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other processes out. The lock belongs to the process: if it is killed, the folder is free again."""
        from filelock import FileLock, Timeout

        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / ".lock", timeout=_PATIENCE_SECONDS)
        try:
            lock.acquire()
        except Timeout:
            who = f"process {self._process()}" if self._process() is not None else "another process"
            raise FolderInUseError(
                f"{self.path} is in use: {who} is training there; wait for it, or choose another folder with --out"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _process(self) -> int | None:
        """Return who writes here, as far as the record says so."""
        try:
            record = self.read_record()
        except (ValueError, OSError):
            return None
        return record.process if record is not None and record.status == "running" else None

    def move_aside(self) -> Path | None:
        """Rename the folder, so that a new run can begin; nothing is deleted. Returns where it is now."""
        if not self.path.exists():
            return None
        with self.locked():
            number = 1
            while (target := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
                number += 1
            self.path.rename(target)
        return target


def find_run_on_other_data(spec: RunSpec, out: Path) -> Path | None:
    """Return a run that differs from this one in nothing but the fingerprint of its data, if there is one."""
    if spec.data.content is None:
        return None
    wanted = replace(spec, data=replace(spec.data, content=None)).id
    for path in sorted(out.glob(f"{spec.name}-*/spec.json")):
        with suppress(OSError, ValueError):  # damaged, or of a stranger
            other = load_spec(path)
            if other.id != spec.id and replace(other, data=replace(other.data, content=None)).id == wanted:
                return path.parent
    return None


def find_runs(out: Path) -> list[RunFolder]:
    """Return the runs under a folder, by name."""
    return [RunFolder(path.parent) for path in sorted(out.glob("*/record.json"))]
