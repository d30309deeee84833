"""The algorithms that a run can learn by: a file for each, and a line in the table.

Importing this package imports nothing heavy: what an algorithm needs for its work, torch above all, it imports then.
"""

from coterie.runs.algorithms.base import Algorithm
from coterie.runs.algorithms.centralised import CentralisedTraining
from coterie.runs.algorithms.confined import ConfinedTraining
from coterie.runs.algorithms.ditto import PersonalAveraging
from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.algorithms.local_only import LocalTraining
from coterie.runs.algorithms.sdp import PrivateTraining

ALGORITHMS: dict[str, Algorithm] = {
    "fedavg": FederatedAveraging(),
    "centralised": CentralisedTraining(),
    "local-only": LocalTraining(),
    "ditto": PersonalAveraging(),
    "sdp": PrivateTraining(),
    "confined": ConfinedTraining(),
}
"""All of them, by the names that ``training.algorithm`` knows."""

__all__ = ["ALGORITHMS", "Algorithm"]
