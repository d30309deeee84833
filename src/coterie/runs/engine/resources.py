"""The resources of a run that is open: workers, the ledger, the roster, and what is closed in the end."""

from contextlib import ExitStack
from dataclasses import dataclass, field

from coterie.cohorts.circles import Indices
from coterie.cohorts.ledger import Ledger
from coterie.cohorts.roster import Client, Roster
from coterie.errors import InputError
from coterie.files import write_file
from coterie.runs.engine.build import Cohorts
from coterie.runs.engine.played import Observe
from coterie.runs.engine.secrets import ClientSecrets
from coterie.runs.settings.config import RunConfig
from coterie.runs.storage.folder import RunFolder
from coterie.training.executors.processes import Trainer


@dataclass(frozen=True, eq=False)
class RunResources:
    """What rounds are played with, as long as a run is open."""

    folder: RunFolder
    trainer: Trainer = field(repr=False)
    ledger: Ledger | None = field(repr=False)
    """Where it is recorded what the server is about to see; None where it sees nothing, or everything."""
    frequencies: Indices = field(repr=False)
    """How often each client was aggregated before."""
    observe: Observe = field(repr=False)
    closing: ExitStack = field(repr=False)
    """Where an algorithm puts what it opens for its rounds: all of it is closed with the run, however that ends."""


def open_roster(
    config: RunConfig, names: tuple[str, ...], cohorts: Cohorts, folder: RunFolder, secrets: ClientSecrets
) -> Roster:
    """Return the clients in their circles, with their keys where they sign; the folder keeps the roster for good."""
    active = config.aggregation.threat == "active-server"
    clients = [Client(name, secrets.identity(name).public if active else b"") for name in names]
    roster = Roster.found(clients, cohorts.circles, cohorts.circles.privacy)
    if not folder.roster_file.exists():
        write_file(folder.roster_file, roster.to_bytes())
    elif folder.roster_file.read_bytes() != roster.to_bytes():
        raise InputError(f"{folder.roster_file} is not the roster of this run")
    return roster
