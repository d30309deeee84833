"""A user's own transport: rounds of secure aggregation over TCP, with asyncio.

Everything that privacy depends on is in `coterie.rounds`, which uses no socket: a transport carries its bytes. Here
each message is preceded by its length in four bytes, and an empty message says that a client will not answer. Names are
not verified, which is enough on one machine; over a network, TLS would authenticate the other end.
"""

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from coterie.arithmetic import FloatArray
from coterie.arithmetic.quantize import Layout, Quantizer
from coterie.arithmetic.ring import RingVector
from coterie.cohorts import Client, Ledger, MultiRound, Roster, random_circles
from coterie.cohorts.memory import MemoryFile
from coterie.errors import PeerProtocolError, RoundAborted
from coterie.rounds import Coordinator, Floor, Member, Round, RoundResult, SessionSettings

LARGEST = 1 << 20  # bytes of a message; a sender that announces more is refused before it can fill the memory
PATIENCE = 20.0  # seconds for an answer; the protocol has no clock, so its transport limits the time


async def send(writer: asyncio.StreamWriter, message: bytes) -> None:
    """Send one message."""
    writer.write(len(message).to_bytes(4, "big") + message)
    await writer.drain()


async def receive(reader: asyncio.StreamReader) -> bytes:
    """Wait for one message."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > LARGEST:
        raise ConnectionError(f"a message of {size} bytes")
    return await reader.readexactly(size)


class Hub:
    """The server's side: a connection to every client that is present."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a client, whose first message is its name."""
        name = (await asyncio.wait_for(receive(reader), PATIENCE)).decode()
        self.lines[name] = reader, writer

    async def ask(self, name: str, message: bytes) -> bytes:
        """Send a message to a client and return its answer; a client that disconnects or is late is removed."""
        if name not in self.lines:
            return b""
        reader, writer = self.lines[name]
        try:
            async with asyncio.timeout(PATIENCE):
                await send(writer, message)
                return await receive(reader)
        except (OSError, EOFError):  # a timeout is an OSError; a connection that ends within a message is an EOFError
            del self.lines[name]
            writer.close()
            return b""

    def hang_up(self) -> None:
        """End all connections."""
        for _, writer in self.lines.values():
            writer.close()

    async def play(self, opened: Round[FloatArray]) -> RoundResult[FloatArray]:
        """Play a round: its messages are sent at once, and a step is closed when all clients have answered or left."""
        outgoing = opened.invite()
        while outgoing:
            answers = await asyncio.gather(*(self.ask(name, message) for name, message in outgoing.items()))
            for name, answer in zip(outgoing, answers, strict=True):
                if answer:
                    opened.receive(name, answer)  # an invalid answer is recorded, and never ends a round
            outgoing = opened.close()
        return opened.result


async def take_part(member: Member, port: int) -> None:
    """Run a client: answer every message until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        await send(writer, member.name.encode())
        while True:
            try:
                answer = member.answer(await receive(reader))
            except (PeerProtocolError, RoundAborted):
                answer = b""
            await send(writer, answer)
    except (OSError, EOFError):
        pass
    finally:
        writer.close()


def make_members(roster: Roster, quantizer: Quantizer, folder: Path, stack: ExitStack) -> list[Member]:
    """Make clients, each with its own memory and floor; the first one leaves when it is asked for its second input."""
    inputs = iter([True, False])

    def contribute(name: str) -> RingVector:
        if name == roster.names[0] and not next(inputs):
            raise ConnectionAbortedError("a client that leaves in the middle of a round")
        update = np.full(4, roster.names.index(name) / 10)
        return quantizer.encode([update], np.random.default_rng()).vector

    def make(client: Client) -> Member:
        memory = stack.enter_context(MemoryFile(folder / f"{client.name}.sqlite")).of(client)
        memory.trust(roster)
        return Member(client.name, lambda _terms: contribute(client.name), memory=memory, floor=Floor(privacy=3))

    return [make(client) for client in roster.clients]


async def play_rounds(folder: Path, rounds: int) -> list[RoundResult[FloatArray]]:
    """Play rounds among nine clients in circles of three."""
    circles = random_circles(9, 3, np.random.default_rng(0))
    roster = Roster.found([Client(f"client-{number}") for number in range(1, 10)], circles, 3)
    quantizer, layout = Quantizer(clip=1.0, precision=16, clients=9), Layout(((4,),), ("float64",))
    with ExitStack() as stack:
        members = make_members(roster, quantizer, folder, stack)
        coordinator: Coordinator[FloatArray] = Coordinator(
            roster,
            MultiRound(circles, cohort=6),
            stack.enter_context(Ledger.open(folder / "ledger.sqlite")),
            SessionSettings(quantizer.ring.bits, quantizer.length(layout)),
            lambda found: quantizer.decode(found.total, layout, len(found.clients)).mean[0],
        )
        hub, results = Hub(), []
        server = await asyncio.start_server(hub.welcome, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, asyncio.TaskGroup() as clients:
            for member in members:
                clients.create_task(take_part(member, port))
            try:
                async with asyncio.timeout(PATIENCE):
                    while len(hub.lines) < len(members):
                        await asyncio.sleep(0.01)
                for number in range(1, rounds + 1):
                    there = np.array([name in hub.lines for name in roster.names])
                    results.append(await hub.play(coordinator.open(number, there, np.random.default_rng(number))))
            finally:
                hub.hang_up()  # which ends the clients too
    return results


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for result in asyncio.run(play_rounds(Path(scratch), rounds=4)):
            mean = "-" if result.value is None else f"{result.value[0]:.3f}"
            print(f"round {result.number}: {result.outcome}, mean {mean}, {result.tally}")
