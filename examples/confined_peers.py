"""Confined descent without a server: processes add their gradients over TCP, and one of them is killed and restarted.

Every peer is a process with its own data, private start and model, in its own folder. In each iteration all peers add
their gradients by additive sharing, as in the paper: each peer splits its vector into random shares, one for every
peer, and publishes the sum of the shares that it holds. The peers learn only the sum over all of them. Each peer then
takes the step that follows from the sum, or refuses it because its own loss would increase.

Additive sharing tolerates no dropout: while a peer is away, the others wait. They must not continue without it, because
the difference of a sum with it and a sum without it is its gradient (exactly so if the others do not move). A peer that
comes back asks the others for the sums that it missed, and judges them one by one.

Connections are encrypted, and authenticated by keys that the peers have of each other from the beginning. There is no
forward secrecy: an attacker who gets a peer's key later can read recorded messages. Peers are trusted to follow the
protocol and to stay: any of them can stop all others, add garbage (which the loss checks of the others refuse), or show
others sums that were never computed. A process that is not a peer can read nothing and is in no sum. A connection is
used only after both ends have proved that they have their keys.

    python examples/confined_peers.py
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from coterie.arithmetic import FloatArray, RingVector
from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.confined import ConfinedDescent, ConstantStep, Contribution, Offsets, SharingTerms
from coterie.confined.sharing import deal, introduce, publish, total
from coterie.crypto.agreement import PrivateKey
from coterie.crypto.context import bind
from coterie.crypto.entropy import SystemEntropy
from coterie.crypto.sealing import seal, unseal
from coterie.errors import CoterieError
from coterie.files import write_secret

PEERS = tuple(f"peer-{number}" for number in range(1, 5))
ITERATIONS = 30
KILLED = PEERS[1]
FEATURES = 8
PATIENCE = 120.0  # seconds after which a peer gives up
LARGEST = 1 << 20  # bytes of a message; a sender that announces more is refused before it can fill the memory
ENTROPY = SystemEntropy()
QUANTIZER, LAYOUT = Quantizer(clip=1.0, precision=20, clients=len(PEERS)), Layout(((FEATURES,),), ("float64",))


Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class RestartError(Exception):
    """The end of an attempt, with the number of the next one."""

    def __init__(self, attempt: int) -> None:
        super().__init__(f"attempt {attempt}")
        self.attempt = attempt


class Line:
    """An encrypted connection to one other peer."""

    def __init__(self, me: str, peer: str, key: bytes, streams: Streams) -> None:
        self._me, self._peer, self._key = me, peer, key
        self._reader, self._writer = streams
        self._sent = self._received = 0
        self._reading: asyncio.Task[bytes] | None = None
        self.ahead: tuple[int, bytes] | None = None
        """A message of a later attempt, kept until this peer reaches that attempt."""

    async def confirm(self) -> None:
        """Prove that this peer has the key, and wait until the other has proved it; a name alone proves nothing."""
        await self.send(0, b"")
        await self._next()

    async def send(self, attempt: int, body: bytes) -> None:
        """Send a message; its seal is valid only at this position in the connection."""
        context = bind("peers message", self._me.encode(), self._peer.encode(), self._sent)
        sealed = seal(self._key, msgspec.msgpack.encode((attempt, body)), context, ENTROPY, "line")
        self._sent += 1
        self._writer.write(len(sealed).to_bytes(4, "big") + sealed)
        await self._writer.drain()

    async def receive(self, attempt: int) -> bytes:
        """Return the next message of an attempt; messages of earlier attempts are dropped."""
        while True:
            number, body = self.ahead or await self._next()
            self.ahead = None
            if number > attempt:
                self.ahead = number, body
                raise RestartError(number)
            if number == attempt:
                return body

    async def _next(self) -> tuple[int, bytes]:
        # The task outlives this call: if an attempt ends within a message, the next attempt reads the rest of it.
        self._reading = self._reading or asyncio.create_task(read_message(self._reader))
        sealed = await asyncio.shield(self._reading)
        self._reading = None
        context = bind("peers message", self._peer.encode(), self._me.encode(), self._received)
        self._received += 1
        return msgspec.msgpack.decode(unseal(self._key, sealed, context), type=tuple[int, bytes])

    def close(self) -> None:
        """End the connection."""
        self._writer.close()
        if self._reading:
            self._reading.cancel()


async def read_message(reader: asyncio.StreamReader) -> bytes:
    """Read the length of a message, in four bytes, and then the message."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > LARGEST:
        raise ConnectionError(f"a message of {size} bytes")
    return await reader.readexactly(size)


class Mesh:
    """The connections of one peer to all others. Of two peers, the later one in the list connects to the other."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._public = name, folder / "public"
        self._key = PrivateKey((folder / name / "channel.key").read_bytes())
        self.lines: dict[str, Line] = {}

    async def listen(self) -> asyncio.Server:
        """Accept connections of other peers, and publish the port."""
        server = await asyncio.start_server(self._welcome, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        write_secret(self._public / f"{self._name}.port", str(port).encode())
        return server

    async def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, ValueError, CoterieError):
            async with asyncio.timeout(PATIENCE):
                peer = (await read_message(reader)).decode()
                if peer in PEERS[PEERS.index(self._name) + 1 :]:
                    self._put(peer, await self._agree(peer, (reader, writer)))
                    return
        writer.close()

    async def _dial(self, peer: str) -> None:
        port = int((self._public / f"{peer}.port").read_text())
        streams = await asyncio.open_connection("127.0.0.1", port)
        name = self._name.encode()
        streams[1].write(len(name).to_bytes(4, "big") + name)
        self._put(peer, await self._agree(peer, streams))

    async def _agree(self, peer: str, streams: Streams) -> Line:
        """Agree on a key for this connection only, made from both peers' keys and a random number of each."""
        mine = ENTROPY.draw("connection", 16)
        streams[1].write(mine)
        theirs = await streams[0].readexactly(16)
        both = (mine, theirs) if self._name < peer else (theirs, mine)
        public = (self._public / f"{peer}.pub").read_bytes()
        line = Line(self._name, peer, self._key.agree(public, bind("peers connection", *both)), streams)
        try:
            await line.confirm()
        except BaseException:
            line.close()
            raise
        return line

    def _put(self, peer: str, line: Line) -> None:
        self.drop(peer)
        self.lines[peer] = line

    def drop(self, peer: str) -> None:
        """Close a connection, if there is one."""
        if line := self.lines.pop(peer, None):
            line.close()

    async def complete(self) -> None:
        """Wait until there is a connection to every other peer."""
        while len(self.lines) < len(PEERS) - 1:
            for peer in PEERS[: PEERS.index(self._name)]:
                if peer not in self.lines:
                    with suppress(OSError, EOFError, ValueError, CoterieError):
                        await self._dial(peer)
            await asyncio.sleep(0.05)

    async def exchange(self, attempt: int, bodies: Callable[[str], bytes]) -> dict[str, bytes]:
        """Send each peer a message, and return the message of each."""

        async def one(peer: str) -> bytes:
            try:
                line = self.lines[peer]
                await line.send(attempt, bodies(peer))
                return await line.receive(attempt)
            except (OSError, EOFError, KeyError, CoterieError):
                self.drop(peer)
                raise RestartError(attempt + 1) from None

        peers = [peer for peer in PEERS if peer != self._name]
        found = await asyncio.gather(*map(one, peers), return_exceptions=True)
        if over := [error for error in found if isinstance(error, BaseException)]:
            raise max(over, key=lambda error: error.attempt if isinstance(error, RestartError) else sys.maxsize)
        return {peer: body for peer, body in zip(peers, found, strict=True) if isinstance(body, bytes)}


class Participant:
    """A peer's data, its own model and all means so far; the model and the means are on its disk."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._file = name, folder / name / "model"
        start = int.from_bytes((folder / name / "start.key").read_bytes(), "big")
        offsets = Offsets([np.zeros(FEATURES)], lambda _name: np.random.default_rng(start))
        self.descent = ConfinedDescent(offsets, [name], ConstantStep(1.0))
        self.means: list[bytes] = []
        self._rows, self._labels = make_data(PEERS.index(name), 60)
        if self._file.exists():
            state, self.means = msgspec.msgpack.decode(self._file.read_bytes(), type=tuple[dict[str, Any], list[bytes]])
            self.descent.restore({key: np.array(value) for key, value in state.items()})

    def contribution(self) -> RingVector:
        """Return the gradient at this peer's own model, clipped and rounded, as a vector to be shared."""
        (model,) = self.descent.confined(self.name)
        error = 1 / (1 + np.exp(-self._rows @ model)) - self._labels
        rng = np.random.default_rng()
        gradient = Contribution(norm=1.0).of([self._rows.T @ error / len(error)], rng)
        return QUANTIZER.encode(gradient, rng).vector

    def take(self, mean: bytes) -> None:
        """Judge the step that follows from a mean gradient by this peer's own data, and put the result on disk."""
        step = self.descent.propose([np.frombuffer(mean)])
        before, after = self.descent.confined(self.name), self.descent.candidate(self.name, step)
        taken = self.descent.judge(self.name, self._loss(before), self._loss(after), np.random.default_rng())
        self.descent.take(step, {self.name: taken})
        self.means.append(mean)
        state = {key: value.tolist() for key, value in self.descent.state().items()}
        write_secret(self._file, msgspec.msgpack.encode((state, self.means)))

    def _loss(self, model: list[FloatArray]) -> float:
        scores = self._rows @ model[0]
        return float(np.mean(np.logaddexp(0, scores) - self._labels * scores))


def say(words: str) -> None:
    """Print a line in one piece, because other peers print at the same time."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def make_data(seed: int, count: int) -> tuple[FloatArray, FloatArray]:
    """Return rows and their labels, which a plane separates except for some noise."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, FEATURES))
    plane = np.linspace(-1, 1, FEATURES)
    return rows, (rows @ plane + rng.normal(scale=0.5, size=count) > 0).astype(np.float64)


async def iterate(me: Participant, mesh: Mesh, attempt: int) -> None:
    """Try one iteration with all peers: first bring them to the same iteration, then add."""
    done = len(me.means)
    counts = await mesh.exchange(attempt, lambda _peer: done.to_bytes(4, "big"))
    least = min([done, *(int.from_bytes(count, "big") for count in counts.values())])
    nonce = ENTROPY.draw("session", 16)
    said = {me.name: (nonce, me.means[least:])}
    own = msgspec.msgpack.encode(said[me.name])
    for peer, body in (await mesh.exchange(attempt, lambda _peer: own)).items():
        said[peer] = msgspec.msgpack.decode(body, type=tuple[bytes, list[bytes]])
    missed = max((means for _, means in said.values()), key=len)
    if missed:
        if any(means != missed[: len(means)] for _, means in said.values()):
            raise CoterieError("peers have different sums: one of them does not follow the protocol")
        for mean in missed[done - least :]:
            me.take(mean)
        raise RestartError(attempt + 1)
    if done == ITERATIONS:
        return
    session = hashlib.sha256(b"".join(said[peer][0] for peer in PEERS)).digest()
    terms = SharingTerms(session, PEERS, QUANTIZER.ring.bits, QUANTIZER.length(LAYOUT), colluders=1)
    introduced, key = introduce(terms, me.name, ENTROPY)
    keys = await mesh.exchange(attempt, lambda _peer: key)
    dealt, shares = deal(introduced, keys, me.contribution(), ENTROPY)
    held = await mesh.exchange(attempt, lambda peer: shares[peer])
    disclosed, own_sum = publish(dealt, held)
    sums = await mesh.exchange(attempt, lambda _peer: own_sum)
    (found,) = QUANTIZER.decode(total(disclosed, sums), LAYOUT, len(PEERS)).mean
    me.take(found.tobytes())


async def take_part(name: str, folder: Path) -> None:
    """Run a peer until all peers have done all iterations."""
    me, mesh, attempt = Participant(name, folder), Mesh(name, folder), 0
    if me.means:
        say(f"{name} is back, at iteration {len(me.means)}")
    async with asyncio.timeout(PATIENCE), await mesh.listen():
        while True:
            await mesh.complete()
            try:
                finished = len(me.means) == ITERATIONS
                await iterate(me, mesh, attempt)
                attempt += 1
                if finished:
                    break
            except RestartError as error:
                attempt = max(attempt, error.attempt)
        for peer in PEERS:
            mesh.drop(peer)
    rows, labels = make_data(len(PEERS), 1000)
    own, public = me.descent.confined(name)[0], me.descent.public_model[0]
    scores = [float(np.mean((rows @ model > 0) == labels)) for model in (own, public)]
    say(f"{name}: {len(me.means)} sums, own model {scores[0]:.0%} right, the public one {scores[1]:.0%}")


def start_peer(name: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a peer's process."""
    return subprocess.Popen([sys.executable, __file__, str(folder), name])  # noqa: S603 - this program


def prepare(folder: Path) -> None:
    """Make a folder with secrets for every peer, and publish their public keys."""
    (folder / "public").mkdir()
    for name in PEERS:
        (folder / name).mkdir(mode=0o700)
        key = PrivateKey.generate(ENTROPY, "channel")
        write_secret(folder / name / "channel.key", key.secret())
        write_secret(folder / name / "start.key", ENTROPY.draw("start", 16))
        (folder / "public" / f"{name}.pub").write_bytes(key.public)  # as if their owners had exchanged them


def play(folder: Path) -> None:
    """Start all peers, kill one of them with -9 in the middle, start it again, and wait until all are done."""
    until = time.monotonic() + PATIENCE
    processes = {name: start_peer(name, folder) for name in PEERS}
    try:
        while time.monotonic() < until and len(Participant(KILLED, folder).means) < ITERATIONS // 3:
            time.sleep(0.01)
        processes[KILLED].kill()
        processes[KILLED].wait()
        say(f"{KILLED} was killed, and the others wait for it")
        processes[KILLED] = start_peer(KILLED, folder)
        for process in processes.values():
            if process.wait(max(1.0, until - time.monotonic())):
                raise SystemExit("a peer failed")
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


if __name__ == "__main__":
    os.umask(0o077)
    match sys.argv[1:]:
        case [place, name]:
            asyncio.run(take_part(name, Path(place)))
        case _:
            with tempfile.TemporaryDirectory() as scratch:
                prepare(Path(scratch))
                play(Path(scratch))
