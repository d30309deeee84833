"""Rounds on Flower, with protection and without, on the same nodes in one run.

A protected round takes several trips of messages and a plain one takes one. On Flower a trip is expensive: every
message to a node starts a process there, and all parties poll. So rounds are timed under both protocols, in two trips
and in five. For comparison, trips without work are timed too: empty ones, and trips with as many bytes as those of a
secure round. The unavoidable work of such a round is measured in :mod:`coterie.bench.flower_limit`.
"""

import json
import shutil
import statistics
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coterie.bench.flower_limit import Operations
from coterie.bench.loopback import LocalFederation
from coterie.errors import ConfigError, RoundAborted
from coterie.host import cores, install_command
from coterie.secagg.protocols import SessionProtocol
from coterie.secagg.terms import ThreatMode

_RUN_SECONDS, _TRIP_SECONDS = 1800.0, 450.0  # how long the run may take, and each trip in it


@dataclass(frozen=True)
class SecureCosts:
    """The cost of secure rounds under one protocol; medians over rounds, in seconds and bytes."""

    seconds: float
    steps: dict[str, float]
    """The seconds of each of a round's trips."""
    carried: dict[str, float]
    """The seconds of each trip of a program that only carries the same number of bytes."""
    messages: float
    """To each client in a round."""
    downloaded: float
    """Bytes of the protocol to each client in a round; the model comes on top, once, as in a plain round."""
    uploaded: float
    """Bytes from each client."""
    cryptography: float
    """The shortest possible time for keys, signatures and masks of a round, on all cores."""
    storage: float
    """The time to write its answers to disk, as many at a time as there are processes."""

    @property
    def trips(self) -> int:
        """The number of trips."""
        return len(self.steps)

    @property
    def carrying(self) -> float:
        """The seconds of the trips with their bytes, but without work at either end."""
        return sum(self.carried.values())


@dataclass(frozen=True)
class FlowerCosts:
    """The cost of rounds on one federation; medians over rounds, in seconds and bytes."""

    nodes: int
    simulation: bool
    trip: float
    """An empty message to every node and its answer: the cost of Flower's polling and processes."""
    plain: float
    """A round as Flower plays it, in one trip, with its own polling."""
    model: int
    """Bytes of the model, which a plain round sends both ways."""
    cores: int
    """The processor cores, which all nodes and the server share here."""
    protocols: dict[str, SecureCosts]
    """Secure rounds, by the name of the protocol."""

    def overhead(self, protocol: str) -> float:
        """Return the seconds that protection adds to a round."""
        return self.protocols[protocol].seconds - self.plain

    def ratio(self, protocol: str) -> float:
        """Return how many times as long as a plain round a secure one takes."""
        return self.protocols[protocol].seconds / self.plain

    def empty(self, protocol: str) -> float:
        """Return the seconds that the trips of a secure round would take if they were empty."""
        return self.protocols[protocol].trips * self.trip


def measure_federation(
    nodes: int, rounds: int, length: int, folder: Path, *, simulation: bool, mode: str
) -> FlowerCosts:
    """Start a federation in an empty folder, time it, and end all of it."""
    _check_installed(simulation)
    app = folder / "app"
    with resources.as_file(resources.files("coterie.bench") / "flower_app") as source:
        shutil.copytree(source, app, ignore=shutil.ignore_patterns("__pycache__"))
    (app / "LICENSE").write_text("Apache-2.0\n")
    with LocalFederation(folder / "federation", simulation=simulation) as federation:
        if not simulation:
            for number in range(nodes):
                federation.start_node(number, nodes)
        # Flower would give every client two cores, and so leave one of two idle.
        played = f"num-supernodes={nodes} client-resources-num-cpus=1"
        options = ["--federation-config", played] if simulation else []
        run = federation.run(
            app, *options, nodes=nodes, rounds=rounds, length=length, mode=mode, patience=_TRIP_SECONDS
        )
        federation.finish(run, _RUN_SECONDS)
        found = json.loads((federation.server / "trips.json").read_text())
    workers = cores() if simulation else None
    active = mode == ThreatMode.ACTIVE_SERVER
    return FlowerCosts(
        nodes,
        simulation,
        trip=statistics.median(found["trips"]),
        plain=statistics.median(found["plain"]),
        model=4 * length,
        cores=cores(),
        protocols={
            protocol: _secure_costs(
                measured,
                rounds,
                nodes,
                length,
                Operations.of_round(nodes, workers, SessionProtocol(protocol), active=active),
                folder / f"limit-{protocol}",
                workers or nodes,
            )
            for protocol, measured in found["secure"].items()
        },
    )


def _secure_costs(
    found: dict[str, Any], rounds: int, nodes: int, length: int, operations: Operations, folder: Path, writers: int
) -> SecureCosts:
    """Return the medians of the measurements of secure rounds, with the unavoidable work of such a round."""
    from coterie.deployment.recipe import RosterRecipe

    if found["completed"] != rounds:
        raise RoundAborted(f"only {found['completed']} of {rounds} secure rounds were completed: nothing was compared")
    steps, carried = (
        {step: statistics.median(round_[step] for round_ in found[kind]) for step in found[kind][0]}
        for kind in ("steps", "carried")
    )
    messages, uploaded = (statistics.median(found[kind]) / nodes for kind in ("messages", "received"))
    return SecureCosts(
        statistics.median(found["seconds"]),
        steps,
        carried,
        messages,
        statistics.median(found["sent"]) / nodes,
        uploaded,
        cryptography=operations.cryptography(RosterRecipe(most_weight=1).quantizer(nodes).ring, length) / cores(),
        storage=operations.storage(folder, round(uploaded / messages)) / writers,
    )


def _check_installed(simulation: bool) -> None:
    missing = [name for name in ("flwr", *(["ray"] if simulation else [])) if find_spec(name) is None]
    if missing:
        extra = "simulation" if simulation else "flower"
        raise ConfigError(f"this needs {missing[0]}: {install_command(extra)}")
