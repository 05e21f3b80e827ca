"""Memory of a training process: what is freed is kept for the next step.

Every step allocates and frees the same activations and gradients, many of them megabytes. Linux's usual allocator gives
such blocks back to the system and asks for them again, and the system fills them with zeros each time: about a tenth of
CifarNet's training time on a CPU (``python -m benchmarks.cost`` shows what is left).
"""

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 * 2**20  # what glibc accepts
_PAD = 64 * 2**20


def keep_freed_memory() -> bool:
    """Let this process keep the memory it frees; returns whether its allocator can do so. Of use on a CPU."""
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # not glibc
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD), (_TRIM_THRESHOLD, -1), (_TOP_PAD, _PAD))
    return all(mallopt(setting, value) == 1 for setting, value in settings)
