"""Settings of imprinting."""

from dataclasses import dataclass
from typing import Annotated

from coterie.errors import ConfigError
from coterie.settings import DataDir, Option, PicturesName, Seed, Settings, Trials


@dataclass(frozen=True)
class ImprintSettings(Settings):
    """Demonstrate where circles do not help: with a model crafted by the server, any sum contains examples of clients.

    Two defences help: clients that pin the architecture of the model, and noise. The attack runs against both.
    """

    data: PicturesName = "digits"
    cohorts: Annotated[tuple[int, ...], Option("Clients in a sum; may be repeated.", name="--cohort")] = (8, 32)
    bins: Annotated[tuple[int, ...], Option("Bins of the crafted layer; may be repeated.")] = (64, 256, 1024)
    examples: Annotated[int, Option("Examples of each client.", least=1)] = 8
    privacy: Annotated[int, Option("Size of a circle, T, which does not help here.", least=2)] = 4
    noise: Annotated[
        tuple[float, ...],
        Option("Noise multiplier z: noise in each entry has deviation z times the norm bound; may be repeated."),
    ] = (1e-6, 1e-5, 1e-4, 0.01, 1.0)
    trials: Trials = 3
    seed: Seed = 0
    data_dir: DataDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.bins or min(self.bins) < 2:
            raise ConfigError("bins must be at least 2")
        if not self.cohorts or any(cohort % self.privacy or cohort < 2 for cohort in self.cohorts):
            raise ConfigError(f"cohorts must be whole circles of {self.privacy}, not {self.cohorts}")
        if any(not 0 < multiplier < float("inf") for multiplier in self.noise):
            raise ConfigError("noise multipliers must be above 0")
