"""A program for the resume tests: it plays runs in child processes that die by SIGKILL at a chosen moment.

Each line of standard input is ``FOLDER POSITION``: the run in the folder continues, but its process is killed at that
position in the sequence of moments. The program prints ``killed`` or, if the run ended before, all its moments as JSON.
"""

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from coterie.cohorts.ledger import Ledger
from coterie.runs.engine.federation import find_federation
from coterie.runs.engine.run import TrainingRun
from coterie.runs.engine.updates import LocalUpdates
from coterie.runs.storage.folder import Journal, RunFolder


class Moments:
    """Records the moments of a run, and kills the process at a position."""

    def __init__(self, position: int) -> None:
        self._position = position
        self.passed: list[str] = []

    def __call__(self, label: str) -> None:
        if len(self.passed) == self._position:
            os.kill(os.getpid(), signal.SIGKILL)
        self.passed.append(label)


def watch(owner: type, name: str, moment: Callable[[str], None]) -> None:
    """Record the moments before and after every call of a method."""
    method: Callable[..., object] = getattr(owner, name)

    @functools.wraps(method)
    def watched(*args: object, **kwargs: object) -> object:
        label = f"{type(args[0]).__name__}.{name}"
        if isinstance(args[0], Path) and isinstance(args[1], Path):
            label += f" {args[1].name}"  # the name of the file, without the random name of its draft
        moment(f"before {label}")
        result = method(*args, **kwargs)
        moment(f"after {label}")
        return result

    setattr(owner, name, watched)


def play(folder: Path, moment: Callable[[str], None]) -> None:
    for owner, name in (
        (LocalUpdates, "start"),
        (LocalUpdates, "contribution"),
        (Ledger, "reveal"),
        (Ledger, "complete"),
        (Ledger, "abort"),
        (Ledger, "skip"),
        (Journal, "add"),
        (Path, "replace"),
    ):
        watch(owner, name, moment)
    TrainingRun.open(RunFolder.open(folder), MATERIALS).play()


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        folder, position = line.split()
        child = os.fork()  # much faster than a new interpreter with torch; nothing has run yet
        if child == 0:
            moments = Moments(int(position))
            play(Path(folder), moments)
            print(json.dumps(moments.passed), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print("killed", flush=True)
        elif status:
            print(f"failed: {status}", flush=True)


if __name__ == "__main__":
    MATERIALS = find_federation(RunFolder.open(Path(sys.argv[1])).config())
    main()
