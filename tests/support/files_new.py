"""Commands in processes of their own, with a limit on their time, on a terminal, for tests of hostile files."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import coterie

SMALL = (
    *("rounds=2", "clients.count=4", "cohort.size=4", "cohort.privacy=2", "model.name=softmax-regression"),
    *("availability.kind=equal", "availability.dropout=0.0"),
)
SETTINGS = tuple(word for one in SMALL for word in ("--set", one))


class Shown(NamedTuple):
    """How a command ended, and all that reached the terminal. The status is None if it had to be stopped."""

    status: int | None
    said: str


def on_terminal(folder: Path, *arguments: str, seconds: float = 60.0, program: tuple[str, ...] = ()) -> Shown:
    """Run ``coterie`` on a pseudo-terminal; stop it after so many seconds."""
    ours, theirs = pty.openpty()
    path = os.pathsep.join([str(Path(coterie.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-P", *(program or ("-m", "coterie")), *arguments]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": path, "TERM": "xterm", "COLUMNS": "200"},
        start_new_session=True,
    )
    os.close(theirs)
    said, end, status = b"", time.monotonic() + seconds, None
    while True:
        ready, _, _ = select.select([ours], [], [], 0.1)
        if ready:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:
                piece = b""
            if not piece:
                status = process.wait()
                break
            said += piece
        elif process.poll() is not None:
            status = process.returncode
            break
        if time.monotonic() > end:
            process.kill()
            process.wait()
            break
    os.close(ours)
    return Shown(status, said.decode(errors="replace"))
