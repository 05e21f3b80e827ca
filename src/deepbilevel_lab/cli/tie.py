"""A run that another process has started ends when that process does.

The starter keeps the other end of the input open and never writes to it again. However the starter goes, by a kill, a
closed terminal or its own will, the operating system closes the pipe: no signal can do that on every system.
"""

import os
import signal
import sys
from threading import Thread


def read_spec_and_watch() -> str:
    """Return the first line of the input, and stop this process, as SIGTERM would, once the input ends.

    What a terminal sends to all its processes is ignored from here on, Ctrl-C and its own end: both reach
    the starter as well, who answers for this process.
    """
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})  # withheld since this process was born
    text = sys.stdin.readline()
    Thread(target=_watch, args=(sys.stdin.fileno(),), daemon=True).start()
    return text


def _watch(descriptor: int) -> None:
    # Past Python's buffer, whose lock this thread would still hold when the interpreter ends.
    while os.read(descriptor, 1024):
        pass
    signal.raise_signal(signal.SIGTERM)  # a run that listens saves; one that has hardly begun has nothing to save
