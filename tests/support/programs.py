"""Programs in processes of their own: they read commands from standard input, and answer each in lines."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Program:
    """A running program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def tell(self, command: str) -> None:
        """Send one command."""
        assert self._process.stdin
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Wait for one line of the answer."""
        assert self._process.stdout
        return self._process.stdout.readline().strip()


@contextmanager
def started(script: Path, *arguments: str | Path) -> Iterator[Program]:
    """Start a script, which prints ``ready`` when it is."""
    command = [sys.executable, str(script), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        program = Program(process)
        assert program.hear() == "ready"
        yield program
