"""Where the runs of a sweep run: the words of ``--on``."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deepbilevel_lab.sweeps.local import InFolder

ON_HELP = "Where: local (this machine), ray (the cluster of RAY_ADDRESS, or one of its own), or ray:HOST:PORT."
JOBS_HELP = "How many runs in parallel; by default 1, or on Ray as many as fit."


@dataclass(frozen=True)
class Place:
    """A place to run; ``address`` is that of a Ray cluster, if one was named."""

    on_ray: bool = False
    address: str | None = None

    def open(self, out: Path, data_dir: Path, *, workers: int) -> "AbstractContextManager[InFolder]":
        """Return the executor of this place, to be used in a ``with``."""
        if self.on_ray:
            from deepbilevel_lab.sweeps.on_ray import RayCluster

            return RayCluster(self.address, out, data_dir, workers=workers)
        from deepbilevel_lab.sweeps.local import LocalProcesses

        return nullcontext(LocalProcesses(out, data_dir, workers=workers))

    def usual_jobs(self, num_trials: int) -> int:
        """Return how many are started at once by default; Ray lets those wait that have no room."""
        return max(num_trials, 1) if self.on_ray else 1


def read_place(text: str) -> Place:
    """Return what ``--on`` means.

    >>> read_place("ray:10.0.0.1:6379")
    Place(on_ray=True, address='10.0.0.1:6379')
    """
    kind, colon, address = text.partition(":")
    if text == "local":
        return Place()
    if kind != "ray" or (colon and not address):
        raise ValueError(f"--on must be local, ray or ray:HOST:PORT, as in ray:10.0.0.1:6379, got {text!r}")
    return Place(on_ray=True, address=address or None)
