"""Rounds over cohorts, in which contributions become one mean: securely, in the clear, or by additive sharing.

Secure and plain rounds select with the same policy, lose the same clients at the same moments and aggregate whole
circles only. So they differ only in protection and rounding, with one exception: a secure round fails if too few shares
are left to remove the masks, while the plain round succeeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from coterie.cohorts.circles import Indices
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.prekey_stock import PrekeyStock
from coterie.cohorts.roster import Client, Roster
from coterie.errors import InputError, LocalProtocolError
from coterie.files import write_file
from coterie.rounds import Coordinator, Floor, Member
from coterie.rounds.member import ANY_TERMS
from coterie.runs.algorithms.base import Resources, Rounds
from coterie.runs.engine.additive import Additive
from coterie.runs.engine.build import BuiltRun
from coterie.runs.engine.cohorts import Cohorts
from coterie.runs.engine.contributions import Contributions
from coterie.runs.engine.lazy_map import LazyMap
from coterie.runs.engine.plain import Plain
from coterie.runs.engine.secrets import ClientSecrets
from coterie.runs.engine.secure import Secure
from coterie.runs.engine.updates import LocalUpdates
from coterie.runs.settings.config import RunConfig
from coterie.runs.storage.folder import RunFolder
from coterie.secagg.terms import ThreatMode
from coterie.transports.memory import AnswerCount, Carrier, OfferedPrekeys

OnStep: TypeAlias = Callable[[str, int, int], None]
"""Called during a round with the step, the number of clients that have answered, and the number that were asked."""


@dataclass(frozen=True, eq=False)
class RunResources(Resources):
    """The resources of rounds while a run is open."""

    folder: RunFolder
    ledger: Ledger | None = field(repr=False)
    """Records which sums the server is about to see; None if it sees none, or every update."""
    memories: MemoryFile | None = field(repr=False)
    """The memories of the clients; not None if and only if there is a ledger."""
    frequencies: Indices = field(repr=False)
    """The number of earlier rounds in which each client was aggregated, by its number on the roster."""
    on_step: OnStep = field(repr=False)


def cohort_rounds(built: BuiltRun, resources: RunResources) -> Rounds:
    """Return rounds in which the contributions of clients become one sum."""
    config, cohorts = built.config, built.cohorts
    if cohorts is None:
        raise LocalProtocolError("there are no cohorts where nothing is aggregated")
    folder = resources.folder
    secrets = ClientSecrets(folder.secret())
    roster = open_roster(config, tuple(built.federation.parts), cohorts, folder, secrets)
    updates = LocalUpdates(built.strategy, resources.trainer)
    memories = resources.memories
    if resources.ledger is None or memories is None:
        return Plain(
            roster, cohorts.policy, updates, config.aggregation.clip, config.cohort.minimum, resources.frequencies
        )
    (protection,) = cohorts.protections
    contributions = Contributions(updates, protection, secrets, config.seed)
    memories.trust(roster)
    if built.algorithm.additive:
        peers = Coordinator(roster, cohorts.policy, resources.ledger, protection.session, contributions.decode)
        return Additive(peers, contributions, LazyMap(roster.names, lambda name: memories.of(named(roster, name))))
    threads = config.aggregation.threads
    carrier = Carrier(workers=threads if threads > 0 else None, watch=AnswerCount(resources.on_step))
    rounds = Coordinator(
        roster, cohorts.policy, resources.ledger, protection.session, contributions.decode, parallel=carrier.map
    )
    floor = replace(ANY_TERMS, mode=protection.session.mode, privacy=roster.privacy, minimum=config.cohort.minimum)
    if floor.mode is ThreatMode.ACTIVE_SERVER:
        # A malicious server chooses the clients of a session, and could gather all colluders in a small one.
        floor = replace(floor, colluders=built.promise.colluders)
    members = make_members(roster, memories, floor, secrets, contributions)
    # In a simulation, clients offer prekeys when they are needed, also after a crash. So the server need not store
    # them.
    signed = floor.mode is ThreatMode.ACTIVE_SERVER
    rounds.prekeys = OfferedPrekeys(roster, resources.closing.enter_context(PrekeyStock()), members, signed=signed)
    return Secure(rounds, members, carrier, contributions)


def open_roster(
    config: RunConfig, names: tuple[str, ...], cohorts: Cohorts, folder: RunFolder, secrets: ClientSecrets
) -> Roster:
    """Return the roster: clients, circles and, if clients sign, keys. The folder stores it, and it never changes."""
    active = config.aggregation.threat == "active-server"
    clients = [Client(name, secrets.identity(name).public if active else b"") for name in names]
    roster = Roster.found(clients, cohorts.circles, cohorts.circles.privacy)
    if not folder.roster_file.exists():
        write_file(folder.roster_file, roster.to_bytes())
    elif folder.roster_file.read_bytes() != roster.to_bytes():
        raise InputError(f"{folder.roster_file} is not the roster of this run")
    return roster


def make_members(
    roster: Roster, memories: MemoryFile, floor: Floor, secrets: ClientSecrets, contributions: Contributions
) -> LazyMap[Member]:
    """Return all clients of the simulation, each with its own memory.

    A client is created when it is selected. Everything that it keeps between sessions is in its memory.
    """

    def make(name: str) -> Member:
        memory = memories.of(named(roster, name))
        return Member(
            name,
            contributions.of(name, memory),
            memory=memory,
            floor=floor,
            identity=secrets.identity(name) if floor.mode is ThreatMode.ACTIVE_SERVER else None,
        )

    return LazyMap(roster.names, make)


def named(roster: Roster, name: str) -> Client:
    """Return a client of a roster by its name."""
    return roster.clients[roster.numbers[name]]
