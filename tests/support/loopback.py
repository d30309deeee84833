"""A Flower federation on loopback: real processes with folders, ports and keys of their own, all gone at the end."""

import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import clients_digest

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
MARK = "COTERIE_TEST_PROCESS"
POLL = 0.1
START_SECONDS = 60.0


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds; fail with its name, never wait for ever."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(POLL)


def environment(folder: Path) -> dict[str, str]:
    """What every process of a federation in this folder needs: nothing of it is anywhere else."""
    return {
        **os.environ,
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(folder),
        "FLWR_HOME": str(folder / "flwr"),
        "COTERIE_HOME": str(folder / "coterie"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


class Process:
    """A process and all that it starts, recognised by a mark in their environment."""

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        self._mark = uuid.uuid4().hex
        self.log_file = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env={**env, MARK: self._mark},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> int:
        """Return the exit status; end the process if it takes too long, and fail."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"{self.log_file.name} is not done after {seconds:g} s:\n{self.log[-4000:]}") from None

    def stop(self, seconds: float = 15.0) -> None:
        """Ask it to end, as an operator would; then end whatever is left of it."""
        if self.running:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it and all that it started, at once, as a loss of power would."""
        for _ in range(100):
            pids = _marked(self._mark)
            for pid in pids:
                _signal(pid)
            self._process.poll()
            if not pids:
                break
            time.sleep(0.05)
        self._process.wait(10)


class Loopback:
    """A SuperLink and its SuperNodes."""

    def __init__(self, folder: Path, *, simulation: bool = False, authenticated: bool = False) -> None:
        self.folder, self.simulation, self.authenticated = folder, simulation, authenticated
        self.env = environment(folder)
        self.port = free_port()
        self.nodes: dict[str, Process] = {}
        self._processes: list[Process] = []
        self.superlink: Process
        for name in ("flwr", "logs", "coterie", "places"):
            (folder / name).mkdir(parents=True)
        if authenticated:
            make_keys(folder / "keys")
        self._configure()

    def __enter__(self) -> Self:
        self.start_superlink()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.kill()

    def _configure(self) -> None:
        lines = [
            "[superlink]",
            'default = "here"',
            "[superlink.here]",
            f'address = "127.0.0.1:{self.port}"',
            f'root-certificates = "{self.folder}/keys/ca.pem"' if self.authenticated else "insecure = true",
        ]
        (self.folder / "flwr" / "config.toml").write_text("\n".join(lines) + "\n")

    def start(self, name: str, *command: str, **env: str) -> Process:
        process = Process(list(command), {**self.env, **env}, self.folder, self.folder / "logs" / name)
        self._processes.append(process)
        return process

    def start_superlink(self) -> None:
        options = ["--simulation"] if self.simulation else []
        if self.authenticated:
            options += [f"--ssl-ca-certfile={self.folder}/keys/ca.pem", f"--ssl-certfile={self.folder}/keys/link.pem"]
            options += [f"--ssl-keyfile={self.folder}/keys/link.key", "--enable-supernode-auth"]
        else:
            options += ["--insecure"]
        self.superlink = self.start(
            "superlink",
            "flower-superlink",
            *options,
            "--host=127.0.0.1",
            f"--port={self.port}",
            f"--database={self.folder / 'flwr' / 'state.db'}",
            "--disable-runtime-dependency-installation",
        )
        until(lambda: _listening(self.port), START_SECONDS, "a SuperLink that listens")

    def start_node(self, number: int, size: int, **config: str | int) -> Process:
        """Start a SuperNode, or start it again: its folder, and so what it remembers, is the same."""
        name = f"node-{number}"
        settings = {"partition-id": number, "num-partitions": size, "coterie-name": name, **config}
        options = ["--insecure"]
        if self.authenticated:
            key = self._register(name)
            options = [f"--root-certificates={self.folder}/keys/ca.pem", f"--auth-supernode-private-key={key}"]
            settings["coterie-auth-key"] = str(key)
        process = self.start(
            name,
            "flower-supernode",
            *options,
            f"--superlink=127.0.0.1:{self.port}",
            "--host=127.0.0.1",
            f"--port={free_port()}",
            "--node-config",
            " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items()),
        )
        self.nodes[name] = process
        return process

    def _register(self, name: str) -> Path:
        """Make and register a node's key, the first time."""
        key = self.folder / "keys" / name
        if not key.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key)], check=True)
            registering = self.start(f"register-{name}", "flwr", "supernode", "register", f"{key}.pub", "here")
            assert registering.wait(START_SECONDS) == 0, registering.log
        return key

    def run(self, app: Path, *options: str, **config: str | int | float) -> Process:
        """Start a run and stream its log."""
        values = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        given = [*options, *(["--run-config", values] if values else [])]
        return self.start(f"run-{len(self._processes)}", "flwr", "run", str(app), "here", "--stream", *given)

    def finish(self, run: Process, seconds: float) -> None:
        """Wait until a run has ended well."""
        run.wait(seconds)
        assert self.status()[0] == "finished:completed", run.log[-4000:]

    def status(self) -> list[str]:
        """How the runs stand, the latest first: Flower's client exits with 0 whatever became of a run."""
        done = subprocess.run(
            ["flwr", "ls", "here", "--format", "json"],
            env=self.env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=START_SECONDS,
        )
        return [run["status"] for run in json.loads(done.stdout)["runs"]]

    @property
    def server(self) -> Path:
        return self.folder / "coterie" / "server"

    @property
    def places(self) -> Path:
        return self.folder / "places"

    def hold(self, who: str, step: str, when: str) -> Path:
        """Hold a process at a place of the hooked app; the hold ends when the file is removed."""
        hold = self.places / f"{who}.{step}.{when}.hold"
        hold.with_suffix("").unlink(missing_ok=True)
        hold.touch()
        return hold

    def reached(self, hold: Path, seconds: float = 90.0) -> int:
        """Wait until somebody is held; return its process."""
        place = hold.with_suffix("")
        until(lambda: place.exists() and place.read_text() != "", seconds, f"{place.name} is reached")
        return int(place.read_text())

    def rounds(self) -> list[dict[str, Any]]:
        """What the hooked server wrote down after each round, the beginning first."""
        file = self.places / "rounds"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def check_history(self, promised: int = 2) -> dict[int, tuple[str, ...]]:
        """Check that the promise holds in the ledger, that nodes remember the same and answered nothing twice.

        Returns the rows of the ledger.
        """
        with Ledger.inspect(self.server / "ledger.sqlite") as ledger:
            ledger.verify()
            rows = dict(ledger.rows())
        revealed = {clients_digest(row) for row in rows.values()}
        for folder in (self.folder / "coterie" / "nodes").iterdir():
            assert _helped_to_open(folder) <= revealed, f"{folder.name} helped to open a sum that is not in the ledger"
        for file in self.places.glob("*.answers"):
            answers = [json.loads(line) for line in file.read_text().splitlines()]
            replies = {(answer["session"], answer["step"], answer["reply"]) for answer in answers}
            assert len({reply[:2] for reply in replies}) == len(replies), f"{file.name}: one step, several answers"
        audited = subprocess.run(
            [sys.executable, "-m", "coterie", "audit", str(self.server / "ledger.sqlite"), "--require", str(promised)],
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
            timeout=START_SECONDS,
        )
        assert audited.returncode == 0, audited.stdout + audited.stderr
        return rows


def make_keys(folder: Path) -> None:
    """Make an authority and, signed by it, the certificate of a SuperLink on this machine."""
    folder.mkdir()
    new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes"
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for command in (
        f"req -x509 {new_key} -subj /CN=authority -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem",
        f"req {new_key} -subj /CN=localhost -keyout link.key -out link.csr",
        "x509 -req -in link.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out link.pem",
    ):
        words = ["openssl", *command.split()]
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=START_SECONDS)


def hooked_app(folder: Path) -> Path:
    """Return an app whose processes a test can hold."""
    app = folder / "hooked"
    shutil.copytree(ROOT / "tests" / "support" / "hooked_app", app, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", app)
    return app


def _helped_to_open(folder: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(folder / "memory.sqlite")) as memory:
        return {digest for (digest,) in memory.execute("SELECT aggregated FROM sessions WHERE aggregated IS NOT NULL")}


def _listening(port: int) -> bool:
    with socket.socket() as connecting:
        return connecting.connect_ex(("127.0.0.1", port)) == 0


def _marked(mark: str) -> list[int]:
    """The processes with a mark in their environment, zombies apart: those have none."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # gone, or somebody else's
    return found


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
