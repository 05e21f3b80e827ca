"""The processes that share a training run: how they start, what they say to each other, and what if one is lost."""

from deepbilevel_lab.processes.launching import Launch
from deepbilevel_lab.processes.many_processes import find_processes

__all__ = ["Launch", "find_processes"]
