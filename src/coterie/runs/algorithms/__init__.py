"""The training algorithms of runs: each has one file, and one line in the table.

Start with :mod:`~coterie.runs.algorithms.base`, the interface, and :mod:`~coterie.runs.algorithms.fedavg`, the simplest
one. An algorithm sees a :class:`~coterie.runs.algorithms.base.Context`, and a run sees only the interface of the
algorithm. Importing this package does not import torch: an algorithm imports it when a run is built.
"""

from typing import Any

from coterie.runs.algorithms.base import Algorithm
from coterie.runs.algorithms.centralised import CentralisedTraining
from coterie.runs.algorithms.confined import ConfinedTraining
from coterie.runs.algorithms.ditto import PersonalAveraging
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.algorithms.fedprox import ProximalAveraging
from coterie.runs.algorithms.local_only import LocalTraining
from coterie.runs.algorithms.scaffold import ControlledAveraging
from coterie.runs.algorithms.sdp import PrivateTraining
from coterie.runs.sections.common import CommonSettings

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "fedavg": FederatedAveraging,
    "fedprox": ProximalAveraging,
    "scaffold": ControlledAveraging,
    "centralised": CentralisedTraining,
    "local-only": LocalTraining,
    "ditto": PersonalAveraging,
    "sdp": PrivateTraining,
    "confined": ConfinedTraining,
}
"""All algorithms, by the names that ``training.algorithm`` takes."""


def algorithm_of(config: CommonSettings) -> type[Algorithm[Any]]:
    """Return the algorithm that the settings name."""
    return ALGORITHMS[config.training.algorithm]


__all__ = ["ALGORITHMS", "Algorithm", "algorithm_of"]
