"""A Flower federation on loopback: real processes with their own ports and folders, all removed at the end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from coterie.errors import CoterieError, TrainingError

_MARK = "COTERIE_LOOPBACK"
_LOOK = 0.1  # seconds between two looks at a condition
_START = 60.0  # seconds for a program of Flower's to start or to answer
_STOP = 15.0  # seconds that a process may take to end by itself
_SHOWN = 4000  # the last characters of a log, for an error message


class LocalProcess:
    """A process and everything it starts; a mark in their environment identifies them."""

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._mark = uuid.uuid4().hex
        self.log_file = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(  # noqa: S603 - programs of Flower's, from this environment
                command,
                env={**env, _MARK: self._mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        """The output so far."""
        return self.log_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        """Return the exit status; a process that takes longer is ended, and an error is raised."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TrainingError(
                f"{self.log_file.name} is not done after {seconds:g} s:\n{self.log[-_SHOWN:]}"
            ) from None

    def stop(self) -> None:
        """Ask the process to end, as an operator would; then end everything that is left of it."""
        if self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP)
        self.kill()

    @property
    def left(self) -> list[int]:
        """The processes that it started, including itself, and that still run."""
        return _find_marked(self._mark)

    def kill(self) -> None:
        """End the process and everything it started at once, as a power failure would."""
        for _ in range(100):
            if not (pids := self.left):
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.05)
        self._process.wait(10)


class LocalFederation:
    """A SuperLink and its SuperNodes on this machine."""

    def __init__(self, folder: Path, *, simulation: bool = False) -> None:
        """Prepare a federation in an empty folder; it keeps all its files there."""
        self.folder, self.simulation = folder, simulation
        self.env = environment(folder)
        self.port = free_port()
        self._processes: list[LocalProcess] = []
        for name in ("flwr", "logs", "coterie"):
            (folder / name).mkdir(parents=True)
        self._configure("insecure = true")

    def __enter__(self) -> Self:
        self.start_superlink()
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()

    def _configure(self, security: str) -> None:
        lines = ["[superlink]", 'default = "here"', "[superlink.here]", f'address = "127.0.0.1:{self.port}"', security]
        (self.folder / "flwr" / "config.toml").write_text("\n".join(lines) + "\n")

    @property
    def server(self) -> Path:
        """The folder in which the server keeps its history."""
        return self.folder / "coterie" / "server"

    def start(self, name: str, *command: str) -> LocalProcess:
        """Start a process of the federation; its log has this name."""
        process = LocalProcess(list(command), self.env, self.folder, self.folder / "logs" / name)
        self._processes.append(process)
        return process

    def start_superlink(self, *options: str) -> LocalProcess:
        """Start the SuperLink and wait until it listens."""
        chosen = options or ("--insecure",)
        process = self.start(
            "superlink",
            "flower-superlink",
            *(["--simulation"] if self.simulation else []),
            *chosen,
            "--host=127.0.0.1",
            f"--port={self.port}",
            f"--database={self.folder / 'flwr' / 'state.db'}",
            "--disable-runtime-dependency-installation",
        )
        until(lambda: _listening(self.port), _START, "a SuperLink that listens")
        return process

    def start_node(self, number: int, size: int, *options: str, **config: str | int) -> LocalProcess:
        """Start a SuperNode, or restart it: its folder, and so its memory, stays the same."""
        name = f"node-{number}"
        settings = {"partition-id": number, "num-partitions": size, "coterie-name": name, **config}
        return self.start(
            name,
            "flower-supernode",
            *(options or ("--insecure",)),
            f"--superlink=127.0.0.1:{self.port}",
            "--host=127.0.0.1",
            f"--port={free_port()}",
            "--node-config",
            " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items()),
        )

    def run(self, app: Path, *options: str, **config: str | int | float) -> LocalProcess:
        """Start a run of an app and stream its log."""
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        given = [*options, *(["--run-config", values] if values else [])]
        return self.start(f"run-{len(self._processes)}", "flwr", "run", str(app), "here", "--stream", *given)

    def finish(self, run: LocalProcess, seconds: float) -> None:
        """Wait until a run has ended successfully; Flower's client always exits with 0."""
        run.wait(seconds)
        if (status := self.status()[:1]) != ["finished:completed"]:
            raise TrainingError(f"the run ended as {', '.join(status) or 'nothing'}:\n{run.log[-_SHOWN:]}")

    def status(self) -> list[str]:
        """Return the status of the runs, the latest first."""
        done = subprocess.run(
            ["flwr", "ls", "here", "--format", "json"],  # noqa: S607 - from the path of this environment
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=_START,
        )
        return [run["status"] for run in json.loads(done.stdout)["runs"]]


def environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of every process of a federation in this folder."""
    programs = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', '')}",
        "HOME": str(folder),
        "FLWR_HOME": str(folder / "flwr"),
        "COTERIE_HOME": str(folder / "coterie"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until a condition holds; raise an error after some seconds."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise CoterieError(f"not within {seconds:g} s: {what}")
        time.sleep(_LOOK)


def _listening(port: int) -> bool:
    with socket.socket() as connecting:
        return connecting.connect_ex(("127.0.0.1", port)) == 0


def _find_marked(mark: str) -> list[int]:
    """Return the processes with a mark in their environment; zombies have none."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or somebody else's
    return found
