"""Trials as processes of this machine, and what all executors have in common whose runs lie in one folder it sees."""

from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

from deepbilevel_lab.networks.named_code import check_named, needs_naming
from deepbilevel_lab.records import RunRecord
from deepbilevel_lab.specs import canonical_json
from deepbilevel_lab.sweeps.tied_command import End, TiedCommand
from deepbilevel_lab.sweeps.trials import Job, News, Trial
from deepbilevel_lab.training.folder import RunFolder
from deepbilevel_lab.training.own_rules import check_loaded
from deepbilevel_lab.training.run import SAVE_SECONDS
from deepbilevel_lab.training.spec import RunSpec


class InFolder(ABC):
    """What such executors have in common; see :class:`~deepbilevel_lab.sweeps.trials.Executor`.

    Args:
        out: the folder of runs.
        data_dir: where data sets stand.
        workers: processes of a run that decode image files.
        save_seconds: between two checkpoints at the most.
        resume: go on with what is there, or move it aside and start anew.
    """

    def __init__(
        self, out: Path, data_dir: Path, *, workers: int = 0, save_seconds: float = SAVE_SECONDS, resume: bool = True
    ) -> None:
        self.out = out
        self._resume = resume
        options = ["--out", out, "--data-dir", data_dir, "--workers", workers, "--save-seconds", save_seconds]
        self._options = [*map(str, options), "--resume" if resume else "--no-resume"]

    def find_finished(self, spec: RunSpec, *, network: bool) -> RunRecord | None:
        """See :class:`~deepbilevel_lab.sweeps.trials.Executor`."""
        folder = RunFolder.of(spec, self.out)
        record = self.find_record(spec) if self._resume else None
        if record is None or record.status != "done" or (network and not folder.model_file.is_file()):
            return None
        return record

    def find_record(self, spec: RunSpec) -> RunRecord | None:
        """Return the record of a run as it stands."""
        with suppress(ValueError, OSError):  # damaged, or out of reach: the run itself will say so
            return RunFolder.of(spec, self.out).read_record()

    def place_of(self, spec: RunSpec) -> str:
        """Return the folder of a run."""
        return str(RunFolder.of(spec, self.out).path)

    @abstractmethod
    def start(self, trial: Trial, news: "Queue[News]") -> Job:
        """Start a trial, or go on with it where it was stopped."""


def name_code(spec: RunSpec) -> list[str]:
    """Return the options by which a process of this one may use code that the user has named to this one."""
    network, method = spec.network, spec.method
    check_loaded(method)
    options = ["--network", check_named(network.name, network.code)] if needs_naming(network.name) else []
    return [*options, "--method", method.kind] if ":" in method.kind else options


def make_news(trial: Trial, said: dict[str, Any] | End) -> News:
    """Return what the process of a trial said as news of it."""
    if isinstance(said, End):
        return News(trial, ending=said.ending, error=said.error, killed=said.killed)
    return News(trial, said)


class LocalProcesses(InFolder):
    """An executor; see :class:`~deepbilevel_lab.sweeps.trials.Executor`."""

    def start(self, trial: Trial, news: "Queue[News]") -> TiedCommand:
        """Start a process."""
        options = [*self._options, *name_code(trial.spec)]
        return TiedCommand(canonical_json(trial.spec), options, lambda said: news.put(make_news(trial, said)))
