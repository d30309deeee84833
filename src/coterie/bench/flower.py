"""Rounds on Flower, with protection and without, on the same nodes in one run.

A round under protection is several trips of messages where a plain one is one trip, and on Flower a trip is expensive:
every message to a node starts a process there, and everybody polls. So trips that do nothing are timed as well. What
protection costs beyond them is cryptography and bytes.
"""

import json
import shutil
import statistics
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from coterie.bench.loopback import LocalFederation
from coterie.errors import ConfigError, RoundAborted
from coterie.host import install_command


@dataclass(frozen=True)
class FlowerCosts:
    """What rounds cost on one federation; medians over rounds, in seconds and bytes."""

    nodes: int
    simulation: bool
    trip: float
    """A message to every node that asks for nothing, and its answer: Flower's polling and its processes."""
    plain: float
    """A round as Flower plays it, in one trip, with its own polling."""
    secure: float
    steps: dict[str, float]
    """The seconds of each of a secure round's trips."""
    messages: float
    """To each client in a round."""
    downloaded: float
    """Bytes of the protocol to each client in a round; the model comes on top, once, as in a plain round."""
    uploaded: float
    """Bytes from each client."""
    model: int
    """Bytes of the model, which a plain round sends both ways."""

    @property
    def overhead(self) -> float:
        """The seconds that protection adds to a round."""
        return self.secure - self.plain

    @property
    def extra_trips(self) -> float:
        """The seconds that its further trips would take if they did nothing."""
        return (len(self.steps) - 1) * self.trip


def measure_federation(
    nodes: int, rounds: int, length: int, folder: Path, *, simulation: bool, mode: str, seconds: float = 1200.0
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
        options = ["--federation-config", f"num-supernodes={nodes}"] if simulation else []
        run = federation.run(app, *options, nodes=nodes, rounds=rounds, length=length, mode=mode, patience=seconds / 4)
        federation.finish(run, seconds)
        found = json.loads((federation.server / "trips.json").read_text())
    if found["completed"] != rounds:
        raise RoundAborted(f"only {found['completed']} of {rounds} secure rounds were completed: nothing was compared")
    steps = {step: statistics.median(round_[step] for round_ in found["steps"]) for step in found["steps"][0]}
    return FlowerCosts(
        nodes,
        simulation,
        trip=statistics.median(found["trips"]),
        plain=statistics.median(found["plain"]),
        secure=statistics.median(found["secure"]),
        steps=steps,
        messages=statistics.median(found["messages"]) / nodes,
        downloaded=statistics.median(found["sent"]) / nodes,
        uploaded=statistics.median(found["received"]) / nodes,
        model=4 * length,
    )


def _check_installed(simulation: bool) -> None:
    missing = [name for name in ("flwr", *(["ray"] if simulation else [])) if find_spec(name) is None]
    if missing:
        extra = "simulation" if simulation else "flower"
        raise ConfigError(f"this needs {missing[0]}: {install_command(extra)}")
