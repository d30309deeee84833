"""Settings of property inference."""

from dataclasses import dataclass
from typing import Annotated

from coterie.errors import ConfigError
from coterie.settings import (
    MOST_CLIENTS,
    MOST_TRIALS,
    DataDir,
    DataName,
    ModelName,
    Option,
    RoundDropout,
    Seed,
    Settings,
    Trials,
)


@dataclass(frozen=True)
class PropertySettings(Settings):
    """Property inference: find the clients that have a certain kind of data; here, pictures that are upside down.

    Updates change from round to round, so differencing needs many rounds. But the kind of a client's data stays the
    same. The attacker trains a linear detector on its own data, applies it to every sum, and attributes the scores to
    clients by their participation.

    [dim]Example[/]
    coterie attack property --dropouts 0.05 --html page.html
    """

    clients: Annotated[int, Option("Number of clients N.", least=3, most=MOST_CLIENTS)] = 40
    cohort: Annotated[int, Option("Clients in a round, K.", least=2, most=MOST_CLIENTS)] = 8
    holders: Annotated[int, Option("Clients with the property.", least=1)] = 8
    privacy: Annotated[tuple[int, ...], Option("Size of a circle, T; may be repeated.", least=2, metavar="T")] = (2, 4)
    dropouts: RoundDropout = 0.1
    rounds: Annotated[int, Option("Rounds that the server observes.", least=1, most=MOST_TRIALS)] = 80
    trials: Trials = 3
    data: DataName = "digits"
    model: ModelName = "mlp"
    data_dir: DataDir = None
    examples: Annotated[int, Option("Examples of a client.", least=2)] = 16
    share: Annotated[
        float, Option("Share of the pictures of a client with the property that are upside down.", least=0, most=1)
    ] = 0.5
    own_clients: int = 20
    """Clients that the attacker simulates."""
    ridge: float = 3.0
    """The ridge of the least squares that give each client its score.

    It was chosen under random selection, and is the same for all policies.
    """
    learning_rate: float = 0.1
    batch_size: int = 8
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.holders >= self.clients:
            raise ConfigError(f"holders must be from 1 to {self.clients - 1}, not {self.holders}")
        if self.share == 0:
            raise ConfigError("share must be above 0 and up to 1, not 0")
        if self.own_clients < 4 or self.ridge < 0 or not self.privacy:
            raise ConfigError("own_clients must be at least 4, ridge 0 or more, and at least one T is needed")
