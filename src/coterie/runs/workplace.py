"""The workplace of a run's rounds: workers, the ledger, and what only the simulated clients know."""

from contextlib import ExitStack
from dataclasses import dataclass, field

from coterie.cohorts.circles import Indices
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.roster import Client, Roster
from coterie.crypto.entropy import DeterministicEntropy, Entropy
from coterie.crypto.signing import Identity
from coterie.errors import InputError
from coterie.runs.build import Cohorts
from coterie.runs.config import RunConfig
from coterie.runs.folder import RunFolder, write_whole
from coterie.runs.played import Observe
from coterie.training.executors.processes import Trainer


@dataclass(frozen=True, eq=False)
class Workplace:
    """What rounds are played with, as long as a run is open."""

    folder: RunFolder
    trainer: Trainer = field(repr=False)
    ledger: Ledger | None = field(repr=False)
    """Where it is recorded what the server is about to see; None where it sees nothing, or everything."""
    frequencies: Indices = field(repr=False)
    """How often each client was aggregated before."""
    observe: Observe = field(repr=False)
    resources: ExitStack = field(repr=False)
    """Where an algorithm puts what it opens for its rounds: all of it is closed with the run, however that ends."""


def open_roster(
    config: RunConfig, names: tuple[str, ...], cohorts: Cohorts, folder: RunFolder
) -> tuple[Roster, dict[str, Identity]]:
    """Return the clients in their circles, and where they sign their keys; the folder keeps the roster for good."""
    identities = make_identities(config, names, folder.secret())
    clients = [Client(name, identities[name].public if identities else b"") for name in names]
    roster = Roster.found(clients, cohorts.batches, cohorts.batches.privacy)
    if not folder.roster_file.exists():
        write_whole(folder.roster_file, roster.to_bytes())
    elif folder.roster_file.read_bytes() != roster.to_bytes():
        raise InputError(f"{folder.roster_file} is not the roster of this run")
    return roster, identities


def make_identities(config: RunConfig, names: tuple[str, ...], secret: bytes) -> dict[str, Identity]:
    """Derive the simulated clients' signing keys, where they sign, from what only they know."""
    entropy = DeterministicEntropy(secret)
    active = config.aggregation.threat == "active-server"
    return {name: Identity.generate(entropy, f"identity of {name}") for name in names} if active else {}


def noise_entropy(secret: bytes, number: int, name: str) -> Entropy:
    """Return a client's noise in a round, derived from what only the clients know.

    A round that is repeated after a crash then has the same noise. With fresh noise, the server would see the same
    sum twice and average the noise away.
    """
    return DeterministicEntropy(secret + f"/noise/{number}/{name}".encode())
