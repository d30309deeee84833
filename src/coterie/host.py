"""The machine, as far as a process may ask it: processors, memory, and how to install what is missing."""

import ctypes
import json
import os
import sys
from pathlib import Path

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


def peak_rss_bytes() -> int:
    """The most memory this process has had resident so far.

    Linux counts it per program (``VmHWM``). The portable figure of ``getrusage`` is no substitute there: a child
    inherits its parent's, so a small program started by a large one would look large.
    """
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(fields["VmHWM"].split()[0])
    except (OSError, KeyError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def install_command(extra: str) -> str:
    """Return the command that adds an extra of Coterie, from where this one came: a folder, a wheel, a repository.

    Installers note the origin of whatever is not from an index of packages (PEP 610). Naming the package alone would
    send its reader to whatever an index has under that name.
    """
    from importlib import metadata  # takes longer than all else here, and is hardly ever needed
    from urllib.parse import unquote, urlsplit

    name = __name__.partition(".")[0]
    try:
        noted = metadata.distribution(name).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # not installed, but run from the folder of its source
        return f"pip install '{Path(__file__).parents[2]}[{extra}]'"
    if not noted:
        return f"pip install '{name}[{extra}]'"
    origin = json.loads(noted)
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(origin['url']).path)}[{extra}]'"
    version_control = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return f"pip install '{name}[{extra}] @ {version_control}{origin['url']}'"
