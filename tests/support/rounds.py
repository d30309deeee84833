"""A population with its coordinator and its members, for tests that play whole rounds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.cast import identity_for, names

from coterie.arithmetic.ring import RingVector
from coterie.cohorts.circles import random_circles
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import ClientMemory, MemoryFile
from coterie.cohorts.policies import MultiRound, Policy
from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.cohorts.roster import Client, Roster
from coterie.rounds import Coordinator, Floor, Member, Round, RoundResult, SessionSettings
from coterie.rounds.coordinator import SessionShape
from coterie.secagg import Aggregate, Step, ThreatMode
from coterie.secagg.protocols import SessionProtocol
from coterie.transports.faults import Faults
from coterie.transports.memory import Carrier, OfferedPrekeys

BITS, LENGTH = 16, 4
ME = "client-02"
"""The client whose memory a :class:`Stage` shows."""


def make_roster(size: int = 24, privacy: int = 3, seed: int = 1) -> Roster:
    circles = random_circles(size, privacy, np.random.default_rng(seed))
    return Roster.found([Client(name, identity_for(name).public) for name in names(size)], circles, privacy)


def one_hot(roster: Roster) -> dict[str, RingVector]:
    """Return inputs whose sum shows its clients: powers of two, over four entries."""
    vectors = {}
    for number, name in enumerate(roster.names):
        vectors[name] = np.zeros(LENGTH, np.uint16)
        vectors[name][number // 8] = 1 << (number % 8)
    return vectors


def in_sum(roster: Roster, total: RingVector) -> set[str]:
    return {name for number, name in enumerate(roster.names) if total[number // 8] >> (number % 8) & 1}


def two_trip_shape(_clients: int) -> SessionShape:
    return SessionShape(protocol=SessionProtocol.TWO_TRIPS)


class Population:
    """A coordinator over a ledger, and members with their own memories, in one process."""

    def __init__(
        self,
        roster: Roster,
        ledger: Ledger,
        cohort: int = 12,
        *,
        policy: Policy | None = None,
        memories: Path | str = ":memory:",
        floor: Floor | None = None,
        two_trips: bool = False,
        stock: PrekeyStock | None = None,
        durable: bool = False,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        if two_trips:
            settings.setdefault("shape", two_trip_shape)
            floor = floor or Floor(prekey_days=None)
        self.roster, self.ledger = roster, ledger
        self.vectors: Mapping[str, RingVector] = one_hot(roster)
        self.carrier = Carrier(workers=1)
        self.coordinator: Coordinator[Aggregate] = Coordinator(
            roster,
            policy or MultiRound(roster.usable(), cohort),
            ledger,
            SessionSettings(bits=BITS, length=LENGTH, **settings),
            lambda aggregate: aggregate,
        )
        active = self.coordinator.settings.mode is ThreatMode.ACTIVE_SERVER
        self.file = MemoryFile(memories, durable=durable)
        self.members = {}
        for client in roster.clients:
            memory = self.file.of(client)
            memory.trust(roster)
            self.members[client.name] = Member(
                client.name,
                lambda _terms, name=client.name: self.vectors[name],  # type: ignore[misc]
                memory=memory,
                floor=floor,
                identity=identity_for(client.name) if active else None,
            )

        if two_trips:
            self.coordinator.prekeys = OfferedPrekeys(roster, stock or PrekeyStock(), self.members, signed=active)

    def play(
        self,
        number: int,
        available: np.ndarray | None = None,
        rng: np.random.Generator | None = None,
        faults: Faults | None = None,
        *,
        resuming: bool = False,
    ) -> RoundResult[Aggregate]:
        everybody = np.ones(len(self.roster.clients), bool)
        opened = self.coordinator.open(
            number,
            everybody if available is None else available,
            rng or np.random.default_rng(number),
            resuming=resuming,
        )
        self.carrier.faults = faults or Faults()
        self.carrier.play(opened, self.members)
        return opened.result


class Stage:
    """A round that a test plays step by step; clients keep their memories on disk, as nodes do."""

    def __init__(
        self, folder: Path, mode: ThreatMode = ThreatMode.ACTIVE_SERVER, size: int = 6, *, two_trips: bool = True
    ) -> None:
        self.ledger = Ledger.open(folder / "ledger.db")
        self.path, self.mode, self.size, self.two_trips = folder / "clients.db", mode, size, two_trips
        self.population = self.processes()
        self.members = self.population.members
        self.round = self.open(1)
        self.inbox = self.round.invite()

    def processes(self) -> Population:
        """Return all members as after a restart of their processes, with only their memories."""
        roster = make_roster(self.size)
        return Population(
            roster, self.ledger, self.size, memories=self.path, mode=self.mode, two_trips=self.two_trips, durable=True
        )

    def open(self, number: int) -> Round[Aggregate]:
        return self.population.coordinator.open(number, np.ones(self.size, bool), np.random.default_rng(0))

    def until(self, step: Step, gone: tuple[str, ...] = ()) -> "Stage":
        while self.round.step is not step:
            for name, message in self.inbox.items():
                if name not in gone:
                    assert self.round.receive(name, self.members[name].answer(message)) is None
            self.inbox = self.round.close()
        return self

    @property
    def memory(self) -> ClientMemory:
        memory = self.members[ME]._memory
        assert memory is not None
        return memory
