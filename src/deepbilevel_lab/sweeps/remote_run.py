"""A run on another node, held there by a small process that passes on what it says.

Knows nothing of Ray, which starts this process, and loads no torch, since the command that it starts will. If this
process goes, the command's input closes with it: the run saves and ends (``cli/tie.py``).
"""

import platform
import time
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import deepbilevel_lab
from deepbilevel_lab.sweeps.tied_command import End, TiedCommand

_HEAR_SECONDS = 30.0  # no answer is awaited longer, so that a dead connection is noticed
_FREE_SECONDS = 120.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Order:
    """What a node needs to know of a run.

    Attributes:
        spec: as one line of JSON.
        options: of ``deepbilevel train``; paths in them are absolute.
        folder: of the run.
        mark: a file that whoever gave the order has made in the folder of runs.
        data_dir: where data stands, or None if it stands nowhere.
        version: of whoever gave the order.
        again: whether another process began the run, and may not have ended yet.
    """

    spec: str
    options: tuple[str, ...]
    folder: str
    mark: str
    data_dir: str | None
    version: str
    again: bool = False


class RemoteRun:
    """Runs one order; its methods are called from other machines, several at once."""

    def __init__(self) -> None:
        self._said: Queue[dict[str, Any] | End] = Queue()
        self._command: TiedCommand | None = None

    def begin(self, order: Order) -> None:
        """Start the command, or refuse to train where nobody would find the results."""
        check_order(order)
        if order.again:
            _wait_until_free(Path(order.folder))
        # Apart: when a worker is lost, Ray kills its group of processes a fifth of a second later, and saving may take
        # longer.
        self._command = TiedCommand(order.spec, order.options, self._said.put, apart=True)

    def hear(self) -> list[dict[str, Any] | End]:
        """Return what was said since the last call, as soon as there is something."""
        try:
            said = [self._said.get(timeout=_HEAR_SECONDS)]
        except Empty:
            return []
        while not self._said.empty():
            said.append(self._said.get())
        return said

    def stop(self) -> None:
        """Ask the run to save and end."""
        if self._command is not None:
            self._command.stop()


def check_order(order: Order) -> None:
    """Refuse an order that this node cannot carry out as its giver means it."""
    node = platform.node()
    if order.version != deepbilevel_lab.__version__:
        raise ValueError(
            f"node {node} has deepbilevel {deepbilevel_lab.__version__}, and the command that asks has "
            f"{order.version}; install the same version on every node"
        )
    if not Path(order.mark).is_file():
        raise FileNotFoundError(
            f"node {node} does not see the folder of runs {Path(order.mark).parent}; choose one that all nodes share "
            "under the same path, such as a network file system, with --out"
        )
    if order.data_dir is not None and not Path(order.data_dir).exists():
        raise FileNotFoundError(
            f"node {node} does not see the data in {order.data_dir}; copy it there, or choose a folder that all nodes "
            "share under the same path, with --data-dir"
        )


def _wait_until_free(path: Path) -> None:
    """Give the process that was cut off the time to save; what it saves is where the next one goes on."""
    from deepbilevel_lab.training.folder import RunFolder  # brings torch, and so only where it is needed

    until = time.monotonic() + _FREE_SECONDS
    while RunFolder(path).in_use() and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
