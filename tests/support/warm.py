"""Commands in forks of a process that has already imported Coterie.

A new interpreter spends most of a short command on imports. :class:`WarmStart` is a process that imports the modules
once. Each command is a fork of it, with its own arguments, output, limits and status. The memory of two commands can be
compared, because the process has only imported modules, and has no free memory that a command could use without being
measured. A fork does not show how an interpreter starts and ends; tests of that start a new one.
"""

import ctypes
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

PROJECT = Path(__file__).parents[2]
SECONDS = 200
"""A command is ended after this time, with status -SIGALRM."""


class Ended(NamedTuple):
    """The end of a command."""

    status: int
    said: str
    """Its error output."""
    memory: int
    """The most memory that it used, in bytes."""


class WarmStart:
    """A process that has imported ``modules`` and runs commands in forks of itself."""

    def __init__(self, modules: Sequence[str]) -> None:
        """Start the process; it imports while the caller continues."""
        path = os.pathsep.join([str(PROJECT / "src"), str(PROJECT), os.environ.get("PYTHONPATH", "")])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    def run(self, arguments: Sequence[str], *, largest_file: int, most_memory: int) -> Ended:
        """Run a command of Coterie with limits on the size of its files and of its address space, in bytes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.NamedTemporaryFile("r", encoding="utf-8") as said:
            request = {"arguments": arguments, "said": said.name, "file": largest_file, "memory": most_memory}
            print(json.dumps(request), file=self._process.stdin, flush=True)
            status, memory = json.loads(self._process.stdout.readline())
            return Ended(status, said.read(), memory)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def _serve(modules: Sequence[str]) -> None:
    """Import the modules, then run one command for each line of the input, and print its status and its memory."""
    for module in modules:
        import_module(module)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # so that commands begin without free memory
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
        _, status, used = os.wait4(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), 1024 * used.ru_maxrss]), flush=True)


def _become(request: dict[str, Any]) -> NoReturn:
    """Run a command in this process, which is a fork, and end it."""
    from coterie.cli import main

    status: object = 0
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(os.open(request["said"], os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file"], request["file"]))
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
        signal.alarm(SECONDS)
        sys.argv = ["coterie", *request["arguments"]]
        main()
    except SystemExit as ending:
        status = ending.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    _serve(sys.argv[1:])
