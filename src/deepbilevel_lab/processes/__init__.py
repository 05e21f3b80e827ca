"""The processes that share a training run: starting, exchanging, and losing one."""

from deepbilevel_lab.processes.launching import Launch
from deepbilevel_lab.processes.many_processes import find_processes

__all__ = ["Launch", "find_processes"]
