"""Settings of model inversion."""

from dataclasses import dataclass
from typing import Annotated

from coterie.errors import ConfigError
from coterie.settings import DATASETS, DataDir, Option, Seed, Settings, Trials


@dataclass(frozen=True)
class FacesSettings(Settings):
    """Model inversion: reconstruct faces from a model, as an eavesdropper and as anyone who receives the model.

    The attack runs on what plain averaging, SA and CCESA send, with masked vectors from real sessions, and on the
    global model, which all three reveal. A masked vector is noise by construction. The setting of the paper is
    --data faces --rounds 50 --epochs 50.
    """

    data: Annotated[
        str, Option("Data set of pictures; each class stands for a person.", metavar="NAME", table=DATASETS)
    ] = "digits"
    rounds: Annotated[int, Option("Rounds of training; the attack observes the last.", least=1, most=10_000)] = 5
    epochs: Annotated[int, Option("Local epochs in a round.", least=1)] = 10
    learning_rate: Annotated[float, Option("Learning rate of clients.")] = 0.05
    connection: Annotated[float, Option("Probability of an edge in CCESA's graph.", least=0, most=1)] = 0.7
    trials: Trials = 3
    seed: Seed = 0
    data_dir: DataDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.connection:
            raise ConfigError("connection must be above 0 and up to 1, not 0")
