"""The machine, as far as a process may ask it: how many processors there are, and memory that stays."""

import ctypes
import os
import sys

# As malloc.h numbers them, and what they are set to: what is at the top of the heap stays up to the first, and blocks
# up to the second are taken from the heap. glibc accepts no larger one.
_TRIM_THRESHOLD, _KEPT = -1, 2**30
_MMAP_THRESHOLD, _BLOCK = -3, 2**25


def cores() -> int:
    """Return how many processors this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_memory() -> None:
    """Keep memory that is freed for the next who needs some, on Linux; elsewhere nothing changes.

    Training and masking need large arrays for a moment, over and over. glibc returns them to the system each time,
    which then clears every page before it hands it out again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _BLOCK)
