"""Settings of the audit of one sum."""

from dataclasses import dataclass
from typing import Annotated

from coterie.errors import ConfigError
from coterie.settings import DataDir, LabelledDataName, Option, Seed, Settings, Trials


@dataclass(frozen=True)
class OneSumSettings(Settings):
    """Audit a single secure sum as if it were a differentially private mechanism.

    The server knows two updates, of which a client sent one, and how the updates of other clients are distributed. Its
    success in finding out from one sum which of the two was sent gives a lower bound on epsilon. The epsilon that noise
    would guarantee is shown beside it.
    """

    data: LabelledDataName = "digits"
    model: Annotated[
        str,
        Option(
            "Model of the clients; the attack inverts a square matrix of its size.",
            table="coterie.training.models:MODELS",
        ),
    ] = "softmax-regression"
    cohorts: Annotated[
        tuple[int, ...], Option("Numbers of clients in a sum, separated by commas.", least=2, commas=True)
    ] = (4, 12, 100)
    examples: Annotated[
        int, Option("Examples of each client; with fewer, each one counts for more.", least=2, most=100_000)
    ] = 20
    epochs: Annotated[int, Option("Local epochs.", least=1, most=10_000)] = 5
    learning_rate: Annotated[float, Option("Learning rate of clients.")] = 0.1
    batch_size: int = 10
    population: Annotated[
        int, Option("Clients that sums are drawn from; the attacker simulates as many.", least=4, most=1_000_000)
    ] = 1500
    tries: Annotated[
        int,
        Option(
            "Sums under each hypothesis; half of them choose the test, the others evaluate it.",
            least=4,
            most=10_000_000,
        ),
    ] = 10_000
    noise: Annotated[
        tuple[float, ...], Option("Noise multipliers to compare with, separated by commas.", commas=True)
    ] = (0.5, 1.0, 2.0, 4.0)
    delta: Annotated[float, Option("The delta of (epsilon, delta).")] = 1e-5
    trials: Trials = 3
    seed: Seed = 0
    data_dir: DataDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cohorts or max(self.cohorts) > self.population:
            raise ConfigError(f"cohorts must be numbers from 2 to {self.population}, the size of the population")
        if not 0 < self.delta < 1 or not all(1e-100 <= multiplier <= 1e100 for multiplier in self.noise):
            raise ConfigError("delta must be between 0 and 1, and noise multipliers from 1e-100 to 1e100")
