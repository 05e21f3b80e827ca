"""Trials as processes of this machine."""

from queue import Queue

from deepbilevel_lab.specs import canonical_json
from deepbilevel_lab.sweeps.in_folder import InFolder, make_news
from deepbilevel_lab.sweeps.tied_command import TiedCommand
from deepbilevel_lab.sweeps.trials import News, Trial


class LocalProcesses(InFolder):
    """An executor; see :class:`~deepbilevel_lab.sweeps.trials.Executor`."""

    def start(self, trial: Trial, news: "Queue[News]") -> TiedCommand:
        """Start a process."""
        return TiedCommand(canonical_json(trial.spec), self._options, lambda said: news.put(make_news(trial, said)))
