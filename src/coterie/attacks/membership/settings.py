"""Settings of passive membership inference."""

import math
from dataclasses import dataclass
from typing import Annotated

from coterie.errors import ConfigError
from coterie.settings import MOST_CLIENTS, DataDir, LabelledDataName, Option, Seed, Settings, Trials


@dataclass(frozen=True)
class MembershipSettings(Settings):
    """Passive membership inference: find training examples, from a client's model, its masked upload and the sum.

    A loss threshold, shadow models, LiRA and RMIA decide for every candidate whether the client had it. The same
    attacks, with as many reference models, run on a client's model in plain federated averaging, on its masked upload
    under SA and CCESA (real sessions), and on the global model, which is all that secure aggregation reveals.
    """

    data: LabelledDataName = "digits"
    model: Annotated[
        str, Option("Model of the clients; a larger one remembers more.", table="coterie.training.models:MODELS")
    ] = "mlp"
    examples: Annotated[
        int, Option("Examples of each client; fewer make the attack stronger.", least=2, most=100_000)
    ] = 30
    cohorts: Annotated[
        tuple[int, ...],
        Option(
            "Numbers of clients in a sum, separated by commas; uploads are observed in the last.",
            least=2,
            most=MOST_CLIENTS,
            commas=True,
        ),
    ] = (4, 10)
    rounds: Annotated[int, Option("Rounds of federated averaging.", least=1, most=10_000)] = 3
    epochs: Annotated[int, Option("Local epochs in a round; more of them overfit.", least=1, most=10_000)] = 10
    learning_rate: Annotated[float, Option("Learning rate of clients.")] = 0.2
    batch_size: int = 10
    momentum: float = 0.0
    references: Annotated[int, Option("Reference models of the attacker, an even number.", least=4, most=10_000)] = 16
    victims: Annotated[int, Option("Federations attacked in each trial.", least=1, most=10_000)] = 8
    strangers: int = 300
    """Examples that no client has, for comparison."""
    connection: Annotated[float, Option("Probability of an edge in CCESA's graph.")] = 0.9
    noise: Annotated[
        float, Option("Noise multiplier of one more federation, to show the effect of noise; 0: none.")
    ] = 1.0
    norm: Annotated[float, Option("Norm that updates are clipped to in the federation with noise.")] = 2.0
    delta: float = 1e-5
    data_dir: DataDir = None
    trials: Trials = 4
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.references % 2:
            raise ConfigError(f"references must be an even number of at least 4, not {self.references}")
        if not self.cohorts or self.cohorts[-1] < 3:
            raise ConfigError("the last of cohorts must be at least 3, because its clients play sessions")
        if not 0 < self.connection <= 1:
            raise ConfigError(f"connection must be above 0 and up to 1, not {self.connection}")
        if not 0 <= self.noise < math.inf or not 0 < self.norm < math.inf:
            raise ConfigError("noise must be 0 or more, and norm above 0; both are finite")
        if self.strangers < 1 or not 0 < self.delta < 1:
            raise ConfigError("strangers must be at least 1, and delta between 0 and 1")
