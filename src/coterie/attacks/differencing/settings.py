"""Settings of differencing: on simulated rounds, and on sums that a server saved."""

from dataclasses import dataclass
from typing import Annotated, Literal

from coterie.auditing.settings import LogSettings
from coterie.errors import ConfigError, Remedy
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

Steps = Literal["small", "ordinary"]
_RUN, _LOG, _SUMS, _OUT = (Remedy(option, mention=True) for option in ("run", "ledger", "sums", "out"))


@dataclass(frozen=True)
class DifferencingSettings(Settings):
    """Recover individual updates from the sums of many rounds, by least squares.

    Secure aggregation hides an update in the sum of one round. But the server sees a sum in every round, and knows
    which clients are in it. With random cohorts, and updates that hardly change, about as many rounds as clients reveal
    every update. Cohorts made of fixed circles never do.

    [dim]Examples[/]
    coterie attack differencing --html page.html
    coterie attack differencing --steps ordinary --rounds 300
    coterie attack differencing --dropouts 0.05
    coterie run --set tracking.sums=true --out runs/mine; coterie attack differencing --run runs/mine
    """

    clients: Annotated[int, Option("Number of clients N.", least=2, most=MOST_CLIENTS)] = 40
    cohort: Annotated[int, Option("Clients in a round, K.", least=2, most=MOST_CLIENTS)] = 8
    policies: Annotated[
        tuple[str, ...],
        Option(
            "Policy that selects cohorts; may be repeated.",
            name="--policy",
            metavar="NAME",
            table="coterie.cohorts.policies:POLICIES",
        ),
    ] = ("random", "multi-round")
    privacy: Annotated[tuple[int, ...], Option("Size of a circle, T; may be repeated.", least=1, metavar="T")] = (2, 4)
    rounds: Annotated[int, Option("Rounds that the server observes.", least=1, most=MOST_TRIALS)] = 60
    trials: Trials = 3
    steps: Annotated[
        Steps,
        Option(
            "Size of the steps in these rounds: small, as late in training, when updates hardly change; or ordinary."
        ),
    ] = "small"
    dropouts: RoundDropout = 0.0
    data: DataName = "digits"
    model: ModelName = "mlp"
    data_dir: DataDir = None
    examples: Annotated[int, Option("Examples of a client; 0 deals out all of them.", least=0)] = 0
    by_label: Annotated[
        bool, Option("Give each client few labels, or examples at random.", name="--by-label/--at-random")
    ] = True
    before: Annotated[int, Option("Rounds of training before the server observes.", least=1)] = 100
    learning_rate: Annotated[float, Option("Learning rate of clients, except for small steps.")] = 0.1
    batch_size: Annotated[int, Option("Examples in a step.", least=1)] = 20
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.policies or not self.privacy:
            raise ConfigError("at least one policy and one T are needed")


@dataclass(frozen=True)
class SavedSumsSettings(LogSettings):
    """The saved sums of a server, and how to read the log of the clients in each."""

    run: Annotated[
        str | None, Option("Attack a run that saved its sums (tracking.sums), not a simulation.", metavar="FOLDER")
    ] = None
    log: Annotated[
        str | None,
        Option(
            "Attack saved sums, with this log of the clients in each; any log that coterie audit reads.",
            name="--ledger",
            metavar="LOG",
        ),
    ] = None
    sums: Annotated[
        str | None,
        Option(
            "With --ledger: the mean update of each round, as an array named like the round, or a folder of .npy.",
            metavar="FILE.npz",
        ),
    ] = None
    out: Annotated[
        str | None,
        Option(
            "With --run or --ledger: write the estimates of all clients, as arrays clients, updates (in rows) and "
            "determined (true if the sums leave no choice).",
            metavar="FILE.npz",
        ),
    ] = None
    limit: Annotated[
        float | None,
        Option(
            "Refuse sums or a log that take more than this, unpacked.",
            least=0,
            metavar="MB",
            default="2000 for sums, 250 for a log",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether saved sums are attacked instead of a simulation."""
        return self.run is not None or self.log is not None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.sums is None) != (self.log is None) or (self.run is not None and self.log is not None):
            raise ConfigError("give either ", _RUN, ", or ", _LOG, " and ", _SUMS, " together, or none of them")
        if self.out is not None and not self.given:
            raise ConfigError(_OUT, " is for updates from saved sums: it needs ", _RUN, ", or ", _LOG, " and ", _SUMS)
