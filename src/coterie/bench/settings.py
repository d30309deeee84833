"""Settings of the benchmarks; the docstring of a class is the help of its command."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from coterie.errors import ConfigError
from coterie.settings import MOST_CLIENTS, MOST_LENGTH, MOST_SEED, MOST_TRIALS, MOST_WORKERS, Option, Settings

InputSeed = Annotated[int, Option("Seed of inputs, graph and dropouts; secrets are always fresh.", most=MOST_SEED)]


class Rival(StrEnum):
    """Another system that trains; an enumeration, because typer accepts several choices only from an enumeration."""

    FLOWER = "flower"
    PFL = "pfl"


@dataclass(frozen=True)
class SecaggSettings(Settings):
    """Time one session: each step of a client, the server, bytes and memory.

    The result is compared with plain summation before any number is shown.
    """

    clients: Annotated[int, Option("Number of clients.", most=MOST_CLIENTS)] = 100
    length: Annotated[int, Option("Numbers in the vector of a client.", most=MOST_LENGTH)] = 10_000
    dropout: Annotated[float, Option("Share of the clients that drop out before they send their vector.")] = 0.1
    topology: Annotated[
        str,
        Option("Graph of clients that share secrets.", metavar="NAME", table="coterie.graphs.table:searches"),
    ] = "harary"
    degree: Annotated[int | None, Option("Neighbours in a harary graph.", default="30")] = None
    probability: Annotated[
        float | None, Option("Probability of an edge in an erdos-renyi graph.", default="p* of CCESA")
    ] = None
    threshold: Annotated[
        int | None, Option("Shares that reconstruct a secret.", default="the rule of the protocol")
    ] = None
    precision: Annotated[int, Option("Bits of a number, including its sign.", metavar="BITS")] = 22
    workers: Annotated[
        int, Option("Threads that mask and unmask; with one, clients take turns, as in Flower.", most=MOST_WORKERS)
    ] = 1
    seed: InputSeed = 0
    against: Annotated[Literal["flower"] | None, Option("Time another implementation on the same work.")] = None
    active: Annotated[bool, Option("Run the protocol against a malicious server.")] = False


@dataclass(frozen=True)
class ScaleSettings(Settings):
    """Show how the cost of a session grows with the number of clients: client steps, server, memory and total time.

    The first sessions have the same number of neighbours and the same ring: a client's time should stay the same. Then
    the graph of each session is planned for its size: its time should grow in proportion to the number of clients. All
    times are processor times. Each session runs in its own process. With all defaults it takes some minutes.
    """

    clients: Annotated[
        tuple[int, ...], Option("Clients of a session at the same degree; may be repeated.", most=MOST_CLIENTS)
    ] = (500, 1_000, 2_000, 4_000, 8_000)
    planned: Annotated[
        tuple[int, ...], Option("Clients of a session with a planned graph; may be repeated.", most=MOST_CLIENTS)
    ] = (1_000, 10_000)
    degree: Annotated[int, Option("Neighbours of a client in the first sessions.")] = 24
    length: Annotated[int, Option("Numbers in the vector of a client.", most=MOST_LENGTH)] = 10_000
    dropout: Annotated[float, Option("Share of the clients that drop out before they send their vector.")] = 0.1
    seed: InputSeed = 0


@dataclass(frozen=True)
class TwoTripsSettings(Settings):
    """Compare two trips with the papers' five, against a malicious server: rounds that fail, time and bytes.

    Rounds are counted by the rules, and some of them are played. Sessions are real ones, on the complete graph.
    """

    clients: Annotated[
        tuple[int, ...], Option("Clients of a round that may fail; may be repeated.", least=4, most=MOST_CLIENTS)
    ] = (8, 12, 24, 100)
    lost: Annotated[
        tuple[float, ...], Option("Share of the clients lost on each trip; may be repeated.", least=0, most=1)
    ] = (0.05, 0.1)
    rounds: Annotated[int, Option("Rounds to count under each protocol.", least=1, most=MOST_TRIALS)] = 1_000
    sessions: Annotated[
        int,
        Option("Sessions to run for failed rounds, and as many for completed ones.", least=0, most=MOST_TRIALS),
    ] = 2
    cost_clients: Annotated[
        tuple[int, ...], Option("Clients of a session that is timed; may be repeated.", least=4, most=MOST_CLIENTS)
    ] = (12, 50, 100)
    circles: Annotated[int, Option("Size of a circle in timed sessions.", least=1, most=MOST_CLIENTS)] = 2
    length: Annotated[int, Option("Numbers of a vector in timed sessions.", least=1, most=MOST_LENGTH)] = 16_000
    dropout: Annotated[
        float, Option("Share of the clients whose vector is lost in timed sessions.", least=0, most=1)
    ] = 0.0
    seed: Annotated[int, Option("Seed of the losses; secrets are always fresh.", least=0, most=MOST_SEED)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        fewest = min(self.cost_clients, default=self.circles)
        if fewest < self.circles:
            raise ConfigError(f"{fewest} clients cannot form a circle of {self.circles}")


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Compare rounds under secure aggregation with plain rounds, in turns, in one run.

    12 of 120 clients train in a round, on random examples. Evaluation is not included. Both sides must reach the same
    model, up to rounding, before any number is shown. The same holds for systems to compare with: they train the same
    clients in as many processes, aggregate without protection, and take turns with Coterie.
    """

    model: Annotated[
        Literal["lenet", "mnist-cnn", "vgg11"],
        Option("LeNet on inputs as in CIFAR-10, the CNN of McMahan et al. as in MNIST, or VGG-11 as in CIFAR-100."),
    ] = "lenet"
    rounds: Annotated[int, Option("Rounds to time, each with and without protection.", most=MOST_TRIALS)] = 10
    workers: Annotated[
        int | None,
        Option("Processes that train; with 0, this process trains.", most=MOST_WORKERS, default="one for each core"),
    ] = None
    against: Annotated[tuple[Rival, ...], Option("Time another system on the same work; may be repeated.")] = ()


@dataclass(frozen=True)
class ConfinedSettings(Settings):
    """Compare an iteration of confined descent with one full-batch gradient, in turns, in one run.

    All participants of a grid train 784-256-10 networks on the training part of MNIST if COTERIE_DATA has it, else on
    random examples of its shape. The loss check is on; secure sums and evaluation are not included. Additive sharing is
    timed separately, for 32 members and vectors as long as the model. So are iterations of a run with groups of 4 x 4
    members, with secure vertical sums and in the clear, against the same groups unsplit.
    """

    groups: Annotated[int, Option("Horizontal groups, which hold rows.", most=MOST_CLIENTS)] = 1000
    members: Annotated[int, Option("Vertical members of a group, which hold columns.", most=784)] = 112
    repeats: Annotated[int, Option("Iterations to time.", most=MOST_TRIALS)] = 7
    seed: Annotated[int, Option("Seed of offsets, and of random examples.", most=MOST_SEED)] = 0


@dataclass(frozen=True)
class FlowerSettings(Settings):
    """Compare rounds on Flower without protection, in two trips and by the papers' protocol, on the same nodes.

    This starts a SuperLink and SuperNodes on this machine, on free ports of loopback, and ends them. Training takes no
    time here, so only the cost of rounds is left. Trips that do nothing show which part of it is Flower's own: empty
    trips cost its polling and the processes it starts, others carry as many bytes as a secure round. The cryptography
    and the disk alone are the part that cannot be avoided.
    """

    nodes: Annotated[int | None, Option("Number of nodes.", least=2, most=500, default="3, or 50 in simulation")] = None
    rounds: Annotated[int, Option("Rounds of each kind to time.", least=1, most=MOST_TRIALS)] = 3
    length: Annotated[int, Option("Numbers in the model.", least=1, most=50_000_000)] = 100_000
    simulation: Annotated[bool, Option("Simulate all nodes with Ray, instead of a process for each.")] = False
    mode: Annotated[str, Option("active-server or honest-but-curious.")] = "active-server"

    def __post_init__(self) -> None:
        from coterie.secagg.terms import ThreatMode

        super().__post_init__()
        if self.mode not in list(ThreatMode):
            raise ConfigError(f"mode must be one of {', '.join(ThreatMode)}, not {self.mode!r}")


@dataclass(frozen=True)
class AuditSettings(Settings):
    """Time audits from a file to the verdict: at sizes with a target, and how time and memory grow.

    Logs of random rounds and of whole circles have 1,000, 100,000 and 1,000,000 clients. Then the number of clients is
    doubled twice; the same is done with the rounds, the cohort and the exposed clients. Each audit runs in a process of
    its own. The whole benchmark takes some minutes.
    """

    log_format: Annotated[Literal["csv", "jsonl", "parquet"], Option("Format of the logs.", name="--format")] = "csv"
    quick: Annotated[bool, Option("Audit small logs, to try the command.", name="--quick")] = False
    seed: Annotated[int, Option("Seed of the logs.", least=0, most=MOST_SEED)] = 0


@dataclass(frozen=True)
class LedgerSettings(Settings):
    """Time a ledger: appending rounds, opening it again, verifying and auditing it.

    Rounds are over whole circles. The ledger is a temporary SQLite file in the current folder, or a new one in a
    database. With all defaults it takes some minutes.
    """

    clients: Annotated[int, Option("Number of clients.", least=1, most=10_000_000)] = 1_000_000
    rounds: Annotated[int, Option("Rounds to record.", least=1, most=MOST_TRIALS)] = 10_000
    cohort: Annotated[int, Option("Clients in a round.", least=1, most=1_000_000)] = 1_000
    circle: Annotated[int, Option("Clients in a circle.", least=1, most=MOST_CLIENTS)] = 10
    database: Annotated[str, Option("URL of a database without a ledger.", metavar="URL", default="an SQLite file")] = (
        ""
    )
    seed: Annotated[int, Option("Seed of the selection.", least=0, most=MOST_SEED)] = 0
