"""A Flower federation whose processes a test can hold, kill and start again, and whose history it can check."""

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.proxy import Proxy

from coterie.bench.loopback import LocalFederation, LocalProcess, until
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import clients_digest

ROOT = Path(__file__).parents[2]
NODES = 4
SECONDS = 60.0
CONNECTED = "SuperNode ID:"


class HookedFederation(LocalFederation):
    """A SuperLink and SuperNodes that run the hooked app.

    Options are TLS with authentication, and a proxy between ServerApps and the SuperLink. Nodes do not use the proxy.
    """

    def __init__(
        self, folder: Path, *, simulation: bool = False, authenticated: bool = False, proxied: bool = False
    ) -> None:
        super().__init__(folder, simulation=simulation)
        self.nodes: dict[str, LocalProcess] = {}
        self.superlink: LocalProcess
        self._link_options, self._node_options = ["--insecure"], ["--insecure"]
        self._keys = folder / "keys" if authenticated else None
        self.database = folder / "flwr" / "state.db"
        self.places = folder / "places"
        self.places.mkdir()
        if self._keys:
            make_keys(self._keys)
            authority = self._keys / "ca.pem"
            self._configure(f'root-certificates = "{authority}"')
            self._link_options = ["--enable-supernode-auth", f"--ssl-ca-certfile={authority}"]
            self._link_options += [f"--ssl-certfile={self._keys}/link.pem", f"--ssl-keyfile={self._keys}/link.key"]
            self._node_options = [f"--root-certificates={authority}"]
        self._proxy = Proxy(self.port) if proxied else None
        if self._proxy:
            self._link_options += ["--isolation=process"]  # so that the SuperLink starts no ServerApps itself

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None, "the federation was made without a proxy"
        return self._proxy

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._proxy:
            self._proxy.cut()

    def start_superlink(self, *options: str) -> LocalProcess:
        self.superlink = super().start_superlink(*self._link_options, *options)
        if self._proxy:
            address = f"--runtime-api-address=127.0.0.1:{self._proxy.port}"
            self.start("superexec", "flower-superexec", "--insecure", address)
        return self.superlink

    def start_node(self, number: int, size: int, *options: str, **config: str | int) -> LocalProcess:
        name = f"node-{number}"
        given = [*self._node_options, *options]
        if self._keys:
            config["coterie-auth-key"] = key = str(self._registered(self._keys / name))
            given += [f"--auth-supernode-private-key={key}"]
        self.nodes[name] = super().start_node(number, size, *given, **config)
        return self.nodes[name]

    def connect_node(self, number: int, size: int, **config: str | int) -> LocalProcess:
        """Start a SuperNode and wait until the SuperLink knows it."""
        log = self.folder / "logs" / f"node-{number}"
        before = log.read_text(errors="replace").count(CONNECTED) if log.exists() else 0
        process = self.start_node(number, size, **config)
        until(lambda: process.log.count(CONNECTED) > before, SECONDS, f"node {number} is connected")
        return process

    def _registered(self, key: Path) -> Path:
        """Make and register a node's key, the first time."""
        if not key.exists():
            make = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(key)]
            subprocess.run(make, check=True, timeout=SECONDS)
            registering = self.start(f"register-{key.name}", "flwr", "supernode", "register", f"{key}.pub", "here")
            assert registering.wait(SECONDS) == 0, registering.log
        return key

    def hold(self, who: str, step: str, when: str) -> "Hold":
        """Hold a process when it reaches a place of the hooked app."""
        return Hold(self.places / f"{who}.{step}.{when}")

    @property
    def replies(self) -> int:
        """The number of replies at the SuperLink that were not fetched."""
        with contextlib.closing(sqlite3.connect(self.database)) as database:
            return int(database.execute("SELECT count(*) FROM message_res WHERE delivered_at = ''").fetchone()[0])

    @contextlib.contextmanager
    def failing(self, statement: str) -> Iterator[None]:
        """Make a kind of statement, such as ``DELETE ON message_ins``, fail in the SuperLink's database.

        The SuperLink then answers with HTTP 500, as it does if it finds its database locked for too long. A lock would
        disconnect the SuperNodes as well, because Flower's do not try again after HTTP 500.
        """
        with contextlib.closing(sqlite3.connect(self.database, timeout=SECONDS)) as database:
            database.execute(f"CREATE TRIGGER fault BEFORE {statement} BEGIN SELECT * FROM missing; END")  # noqa: S608
            try:
                yield
            finally:
                database.execute("DROP TRIGGER fault")

    def answers(self, who: str, step: str) -> int:
        """Return the number of answers that a node made in a step, in all rounds."""
        lines = (self.places / f"{who}.answers").read_text().splitlines()
        return sum(json.loads(line)["step"] == step for line in lines)

    def rounds(self) -> list[dict[str, Any]]:
        """Return what the hooked server recorded at the beginning and after each round."""
        file = self.places / "rounds"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def check_moves(self) -> None:
        """Check that each round moved the model by the mean over exactly the nodes of its row."""
        for before, after in pairwise(self.rounds()):
            moves = [2.0 ** -(int(name.removeprefix("node-")) + 2) for name in after["clients"]]
            expected = sum(moves) / len(moves) if moves else 0.0
            assert after["value"] - before["value"] == pytest.approx(expected, abs=1e-6), after

    def check_history(self, promised: int = 2) -> dict[int, tuple[str, ...]]:
        """Check that the promise holds in the ledger, and that no node answered twice or opened anything else.

        Returns the rows of the ledger.
        """
        location = self.server / "ledger.sqlite"
        with Ledger.inspect(location) as ledger:
            ledger.verify()
            rows = dict(ledger.rows())
        revealed = {clients_digest(row) for row in rows.values()}
        for folder in (self.folder / "coterie" / "nodes").iterdir():
            assert _helped_to_open(folder) <= revealed, f"{folder.name} helped to open a sum that is not in the ledger"
        for file in self.places.glob("*.answers"):
            answers = [json.loads(line) for line in file.read_text().splitlines()]
            replies = {(answer["session"], answer["step"], answer["reply"]) for answer in answers}
            assert len({reply[:2] for reply in replies}) == len(replies), f"{file.name}: one step, several answers"
        audit = [sys.executable, "-m", "coterie", "audit", str(location), "--require", str(promised)]
        audited = subprocess.run(audit, env=self.env, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert audited.returncode == 0, audited.stdout + audited.stderr
        return rows


class Hold:
    """A place where the next process that reaches it waits until it is released or killed."""

    def __init__(self, place: Path) -> None:
        self._place, self._file = place, place.with_name(f"{place.name}.hold")
        self._file.touch()

    def reached(self, seconds: float) -> int:
        """Wait until a process is held; return its number."""
        until(lambda: self._place.exists() and self._place.read_text() != "", seconds, f"{self._place.name} is reached")
        return int(self._place.read_text())

    def release(self) -> None:
        self._file.unlink()
        self._place.unlink(missing_ok=True)


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
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True, timeout=SECONDS)


def hooked_app(folder: Path) -> Path:
    """Return an app whose processes a test can hold."""
    app = folder / "hooked"
    shutil.copytree(ROOT / "tests" / "support" / "hooked_app", app, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "LICENSE", app)
    return app


def _helped_to_open(folder: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(folder / "memory.sqlite")) as memory:
        return {digest for (digest,) in memory.execute("SELECT aggregated FROM sessions WHERE aggregated IS NOT NULL")}
