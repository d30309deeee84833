"""Settings of disaggregation."""

from dataclasses import dataclass
from typing import Annotated

from coterie.attacks.differencing.settings import Steps
from coterie.errors import ConfigError
from coterie.settings import MOST_TRIALS, DataDir, DataName, ModelName, Option, Seed, Settings, Trials


@dataclass(frozen=True)
class DisaggregationSettings(Settings):
    """Recover a hidden participation log from the sums, then recover individual updates.

    Hiding the participation matrix does not protect it. The sums of many rounds span a space that contains the columns
    of the matrix, one for each client, as vectors of zeros and ones. The number of rounds that each client took part
    in, which telemetry shows, is enough to find them.

    [dim]Example[/]
    coterie attack disaggregation --clients 12 --rounds 60 --html page.html
    """

    clients: Annotated[int, Option("Number of clients N.", least=2, most=200)] = 10
    cohort: Annotated[int, Option("Clients in a round, K.", least=2, most=200)] = 4
    privacy: Annotated[int, Option("Size of a circle, T.", least=2, metavar="T")] = 2
    rounds: Annotated[
        int, Option("Rounds that are observed; fewer than N do not suffice.", least=2, most=MOST_TRIALS)
    ] = 40
    period: Annotated[
        int, Option("The attacker knows how often each client took part in each period of this many rounds.", least=1)
    ] = 8
    trials: Trials = 2
    steps: Annotated[
        Steps, Option("Size of the steps in these rounds: small, so that updates hardly change; or ordinary.")
    ] = "small"
    data: DataName = "digits"
    model: ModelName = "mlp"
    data_dir: DataDir = None
    before: Annotated[int, Option("Rounds of training before sums are observed.", least=1)] = 60
    learning_rate: float = 0.1
    batch_size: int = 20
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period > self.rounds:
            raise ConfigError(f"period must be from 1 to {self.rounds} rounds, not {self.period}")
