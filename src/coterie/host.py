"""Properties of the machine: processors, memory, and the command to install missing packages."""

import ctypes
import json
import os
import sys
from pathlib import Path

# Parameters of mallopt as in malloc.h, and their values: free memory at the top of the heap up to the first is kept,
# and blocks up to the second are taken from the heap. glibc accepts no larger value.
_TRIM_THRESHOLD, _KEPT = -1, 2**30
_MMAP_THRESHOLD, _BLOCK = -3, 2**25


def cores() -> int:
    """Return the number of processors that this process may use, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_memory() -> None:
    """On Linux, keep freed memory in the process for reuse; on other systems, do nothing.

    Training and masking allocate large arrays repeatedly for a short time. By default glibc returns them to the system,
    which clears every page before it hands it out again.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT)
        mallopt(_MMAP_THRESHOLD, _BLOCK)


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process.

    Linux counts it per program (``VmHWM``). The portable value of ``getrusage`` does not work there: a child inherits
    its parent's value, so a small program started by a large one would look large.
    """
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return 1024 * int(fields["VmHWM"].split()[0])
    except (OSError, KeyError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def install_command(extra: str) -> str:
    """Return the command that installs an extra of Coterie from its own origin: a folder, a wheel, a repository.

    Installers record the origin of packages that do not come from a package index (PEP 610). The package name alone
    could install another package that an index has under that name.
    """
    from importlib import metadata  # slow to import and rarely needed
    from urllib.parse import unquote, urlsplit

    name = __name__.partition(".")[0]
    try:
        noted = metadata.distribution(name).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # not installed, but run from its source folder
        return f"pip install '{Path(__file__).parents[2]}[{extra}]'"
    if not noted:
        return f"pip install '{name}[{extra}]'"
    origin = json.loads(noted)
    if "dir_info" in origin:
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(origin['url']).path)}[{extra}]'"
    version_control = f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    return f"pip install '{name}[{extra}] @ {version_control}{origin['url']}'"
