"""FedProx (Li et al. 2020): federated averaging in which clients stay near the common model while they train.

The server sees the same as in federated averaging: one sum of updates a round.
"""

from typing import TYPE_CHECKING

from pydantic import Field

from coterie.runs.algorithms.fedavg import FederatedAveraging
from coterie.runs.records.promise import Promise
from coterie.runs.sections.base import NotNegative, Section
from coterie.runs.sections.common import CommonSettings

if TYPE_CHECKING:
    from coterie.training.strategies import FedProx


class FedProxSettings(Section):
    """FedProx: how near to the common model clients stay while they train."""

    mu: NotNegative = Field(
        default=0.1,
        description="clients minimise their loss + mu/2 ||w - common model||^2; 0 is federated averaging. Values from "
        "0.001 to 1 are usual; larger ones suit clients with more different data",
    )


class ProximalAveraging(FederatedAveraging[FedProxSettings]):
    """One common model; clients with different data drift apart less during a round."""

    section = "fedprox"
    settings = FedProxSettings

    def make_strategy(self) -> "FedProx":
        """Build FedProx with the server's learning rate and momentum."""
        from coterie.training.strategies import FedProx

        return FedProx(
            self.context.problem.model, self.context.curriculum, self.context.settings.mu, **self.context.server
        )

    @classmethod
    def introduction(cls, config: CommonSettings, promise: Promise) -> str:
        """Return what the server sees, and how near clients stay to the common model."""
        return f"{super().introduction(config, promise)}; FedProx with mu = {cls.own(config).mu:g}"
