"""Rounds over cohorts, in which clients' contributions become one mean: securely or plainly.

Both ways select with the same policy, lose the same clients at the same moments and aggregate whole circles only, so
that they differ in protection and rounding and in nothing else. Only where so many shares are lost that masks cannot
be removed does a secure round fail that would succeed without masks.
"""

from dataclasses import replace

from coterie.cohorts.memory import MemoryFile
from coterie.cohorts.roster import Roster
from coterie.errors import LocalProtocolError
from coterie.rounds import Coordinator, Floor, Member
from coterie.rounds.member import ANY_TERMS
from coterie.runs.engine.build import BuiltRun
from coterie.runs.engine.plain import Plain
from coterie.runs.engine.played import Aggregation
from coterie.runs.engine.resources import RunResources, open_roster
from coterie.runs.engine.secrets import ClientSecrets
from coterie.runs.engine.secure import Contributions, Secure
from coterie.runs.engine.updates import LocalUpdates
from coterie.secagg.terms import ThreatMode
from coterie.transports.memory import AnswerCount, Carrier


def cohort_rounds(built: BuiltRun, resources: RunResources) -> Aggregation:
    """Return rounds with one sum each, of what the strategy's clients contribute."""
    config, cohorts = built.config, built.cohorts
    if cohorts is None:
        raise LocalProtocolError("there are no cohorts where nothing is aggregated")
    folder = resources.folder
    secrets = ClientSecrets(folder.secret())
    roster = open_roster(config, tuple(built.federation.parts), cohorts, folder, secrets)
    updates = LocalUpdates(built.strategy, resources.trainer)
    if resources.ledger is None:
        return Plain(
            roster, cohorts.policy, updates, config.aggregation.clip, config.cohort.minimum, resources.frequencies
        )
    (protection,) = cohorts.protections
    threads = config.aggregation.threads
    carrier = Carrier(workers=threads if threads > 0 else None, watch=AnswerCount(resources.observe))
    contributions = Contributions(updates, protection, secrets, config.seed)
    rounds = Coordinator(
        roster, cohorts.policy, resources.ledger, protection.session, contributions.decode, parallel=carrier.map
    )
    memories = resources.closing.enter_context(MemoryFile(folder.memory_file, durable=False))
    floor = replace(ANY_TERMS, mode=protection.session.mode, privacy=roster.privacy, minimum=config.cohort.minimum)
    if (
        floor.mode is ThreatMode.ACTIVE_SERVER
    ):  # who chooses the clients of a session could gather colluders in a small one
        floor = replace(floor, colluders=built.promise.colluders)
    return Secure(rounds, make_members(roster, memories, floor, secrets, contributions), carrier, contributions)


def make_members(
    roster: Roster, memories: MemoryFile, floor: Floor, secrets: ClientSecrets, contributions: Contributions
) -> dict[str, Member]:
    """Return all clients of the simulation, each with a memory of its own that trusts the roster."""
    members = {}
    for client in roster.clients:
        memory = memories.of(client)
        memory.trust(roster)
        members[client.name] = Member(
            client.name,
            contributions.of(client.name, memory),
            memory=memory,
            floor=floor,
            identity=secrets.identity(client.name) if floor.mode is ThreatMode.ACTIVE_SERVER else None,
        )
    return members
