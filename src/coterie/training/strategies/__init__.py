"""Strategies: the algorithms that learn a model from the contributions of many clients.

A strategy makes each client's task, extracts the contribution to aggregate from its result, and applies the mean of
the contributions. :mod:`~coterie.training.strategies.base` defines the interface; start there. The strategies are
:class:`FedAvg`, :class:`FedProx` and :class:`Scaffold` (for clients with different data), :class:`Ditto` (federated
averaging plus personal models), :class:`Confined` (confined gradient descent), and the baselines :func:`centralised`,
:class:`LocalOnly` and :class:`PrivateDescent` (centralised DP-SGD).

A strategy does not aggregate. A run does that securely; :func:`plain_round` does it in the clear.
"""

from coterie.training.strategies.base import ServerOptions, Strategy, Weighting, plain_round, weighted_mean
from coterie.training.strategies.baselines import POOLED, LocalOnly, centralised
from coterie.training.strategies.confined import Confined, LocalComputation
from coterie.training.strategies.ditto import Ditto
from coterie.training.strategies.dp_sgd import PrivateDescent
from coterie.training.strategies.fedavg import FedAvg
from coterie.training.strategies.fedprox import FedProx
from coterie.training.strategies.scaffold import Scaffold

__all__ = [
    "POOLED",
    "Confined",
    "Ditto",
    "FedAvg",
    "FedProx",
    "LocalComputation",
    "LocalOnly",
    "PrivateDescent",
    "Scaffold",
    "ServerOptions",
    "Strategy",
    "Weighting",
    "centralised",
    "plain_round",
    "weighted_mean",
]
