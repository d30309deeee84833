"""The settings of a run: each one's default and what it means.

The defaults together are the run of ``coterie run`` without a file. Settings are values: a run writes the ones it used
into its folder, and the same settings give the same results.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from coterie.cohorts import POLICIES
from coterie.cohorts.availability import AVAILABILITIES
from coterie.cohorts.policies import Mode
from coterie.graphs.table import TOPOLOGIES
from coterie.privacy import DISTRIBUTIONS
from coterie.runs.algorithms import ALGORITHMS, Algorithm
from coterie.runs.algorithms.confined import ConfinedSettings
from coterie.runs.algorithms.ditto import DittoSettings
from coterie.runs.algorithms.sdp import PrivateDescentSettings
from coterie.runs.sections.base import BelowOne, Count, NamedSection, NotNegative, Positive, Section, Share
from coterie.runs.sections.checks import Contradiction
from coterie.runs.sections.choices import OneOf
from coterie.training.data.datasets import DATASETS
from coterie.training.data.partitions import PARTITIONS
from coterie.training.models import MODELS

OWN = "own"
"""The name of data or a model that a Python program brings along."""

_SPARSE = sorted(TOPOLOGIES.keys() - {"complete"}, reverse=True)  # shown in this order, whatever the table's is


class DataSettings(NamedSection):
    """What is learnt from."""

    name: Annotated[str, OneOf(DATASETS, OWN, named=True)] = Field(
        default="digits",
        description="the data set: digits and energy come with Coterie, others are in the folder, own is for Python "
        "programs; or module:function, yours in the current folder, which returns examples",
    )
    folder: str = Field(default="", description="where data sets are; if empty, what COTERIE_DATA says")
    options: dict[str, Any] = Field(
        default={}, description="what the data set's loader or your function takes, such as {train_rows = 1000}"
    )


class PartitionSettings(NamedSection):
    """Who holds which examples."""

    kind: Annotated[str, OneOf(PARTITIONS)] = Field(
        default="label-shards",
        description="how examples are divided among the clients, unless they come with their clients",
    )
    shards: Count = Field(
        default=2, description="label-shards: pieces of the data, sorted by label, that each client gets"
    )
    alpha: Positive = Field(default=0.5, description="dirichlet: the smaller, the fewer labels each client has")
    shared: int = Field(
        default=20, ge=0, le=10**9, description="shared-and-own-label: examples of each label that everybody holds"
    )


class ModelSettings(NamedSection):
    """What is learnt."""

    name: Annotated[str, OneOf(MODELS, OWN, named=True)] = Field(
        default="mlp",
        description="the model; its sizes follow from the data; own is for Python programs; or module:function, yours "
        "in the current folder, which returns a torch module",
    )


class ClientSettings(Section):
    """Who there is."""

    count: int = Field(
        default=40, ge=2, le=10**6, description="how many clients there are; by-person needs one for each person"
    )
    weighting: Literal["uniform", "samples"] = Field(
        default="uniform", description="a client's weight in the mean: the same for all, or the number of its examples"
    )


class AvailabilitySettings(NamedSection):
    """Who is there when a round begins."""

    kind: Annotated[str, OneOf(AVAILABILITIES)] = Field(
        default="heterogeneous",
        description="absent with one probability, with one of 0.1, 0.2, ... 0.5 each, by label, or by time of day",
    )
    dropout: Share = Field(default=0.1, description="equal: the probability of being absent in a round")
    low: Share = Field(default=0.1, description="diurnal: the probability of being absent by day")
    high: Share = Field(default=0.5, description="diurnal: the probability of being absent by night")
    period: Positive = Field(default=24.0, description="diurnal: rounds in a day")

    def problems(self) -> Iterator[Contradiction]:
        """Day comes before night."""
        if self.low > self.high:
            yield "low", f"must not be above high, {self.high}"


StepName: TypeAlias = Literal["advertise", "share", "mask", "confirm", "reveal"]


class FaultSettings(Section):
    """What goes wrong inside a round, after clients were selected."""

    dropout: BelowOne = Field(
        default=0.05, description="probability that a selected client leaves in the course of a round"
    )
    steps: Annotated[tuple[StepName, ...], Field(min_length=1, strict=False)] = Field(
        default=("advertise", "share", "mask", "reveal"), description="steps of the protocol in which they leave"
    )
    late: BelowOne = Field(default=0.0, description="probability that a client's masked update arrives too late")


class CohortSettings(Section):
    """Who takes part in a round, and what that promises."""

    policy: Annotated[str, OneOf(POLICIES, OWN, named=True)] = Field(
        default="multi-round",
        description="how clients are selected; only multi-round and partition protect over many rounds; own is for "
        "Python programs; or module:Class, yours in the current folder, whose attribute circles says what it keeps "
        "together",
    )
    size: Count = Field(default=8, description="K: clients selected for a round")
    privacy: Count = Field(
        default=2, description="multi-round, yours: T, fewer than so many clients can never be told apart"
    )
    mode: Mode = Field(default="fair", description="multi-round: how much to prefer circles that took part less often")
    circles: Literal["random", "similar"] = Field(
        default="random", description="multi-round: circles drawn at random, or of clients that are similarly available"
    )
    survival: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="multi-round: below 1, select more circles because members are lost with 1 - survival"
    )
    minimum: int = Field(default=2, ge=2, le=10**6, description="fewer clients than this are never aggregated")


class ScheduleSettings(NamedSection):
    """How the clients' learning rate changes."""

    kind: Literal["constant", "milestones", "inverse", "cosine"] = Field(
        default="cosine", description="constant, times factor at milestones, 1 / (1 + decay t), or half a cosine"
    )
    milestones: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] = Field(
        default=(), description="milestones: after how many rounds the rate is multiplied by factor"
    )
    factor: Positive = Field(default=0.1, description="milestones: the factor")
    decay: NotNegative = Field(default=0.01, description="inverse: how fast it falls")
    floor: Share = Field(default=0.0, description="cosine: where it ends, as a share of where it began")
    rounds: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="cosine, and confined.step = paper: for how many rounds it is made, after which a cosine stays "
        "where it is; 0 is all rounds that the run begins with, and more rounds later do not change it",
    )


class TrainingSettings(Section):
    """How clients train, and what the server makes of it."""

    algorithm: Annotated[str, OneOf(ALGORITHMS)] = Field(
        default="fedavg",
        description="federated averaging, the same with a model for each client besides, or a baseline: all data in "
        "one place, nothing shared, or all data in one place under differential privacy; or confined descent, in which "
        "every participant keeps its own model and sums of gradients travel",
    )
    epochs: Count = Field(default=5, description="passes over its own examples that a client makes in a round")
    batch_size: Count = Field(default=10, description="examples in a step")
    learning_rate: Positive = Field(default=0.1, description="of the clients")
    momentum: BelowOne = Field(default=0.0, description="of the clients; starts anew in every round")
    weight_decay: NotNegative = Field(default=0.0, description="of the clients")
    shuffle: bool = Field(default=True, description="whether each pass goes through the examples in a new order")
    server_learning_rate: Positive = Field(default=1.0, description="how far the server moves along the mean update")
    server_momentum: BelowOne = Field(default=0.0, description="how much of its last step the server repeats")
    schedule: ScheduleSettings = Field(default=ScheduleSettings(), description="")
    evaluate_every: Count = Field(
        default=1, description="rounds between two evaluations; the last round is evaluated always"
    )
    executor: Literal["auto", "processes", "vectorised"] = Field(
        default="vectorised",
        description="clients in worker processes, or many together as one computation (fast for small models); "
        "auto measures both and records its choice, which decides how sums are rounded",
    )
    workers: int = Field(
        default=-1, ge=-1, le=1024, description="worker processes; -1 is one for each core, 0 none; changes no result"
    )


class AggregationSettings(NamedSection):
    """How updates become their mean."""

    kind: Literal["secure", "plain"] = Field(
        default="secure", description="secure: the server sees sums only; plain: it sees every update, for comparison"
    )
    clip: Positive = Field(default=0.5, description="entries of an update are clipped to [-clip, clip]")
    precision: int = Field(default=20, ge=2, le=53, description="bits of an entry")
    threat: Literal["honest-but-curious", "active-server"] = Field(
        default="honest-but-curious",
        description="a server that follows the protocol, or one that may lie: clients then sign",
    )
    topology: Annotated[str, OneOf("complete", "auto", _SPARSE, named=True)] = Field(
        default="complete",
        description="who shares secrets with whom; auto is the cheapest that withstands what follows, and complete "
        "against an active server, for on others T does not hold for parts of a session; or module:Class, yours in the "
        "current folder",
    )
    connection: Share = Field(
        default=0.0, description="erdos-renyi: probability that two clients share secrets; 0 is as planned"
    )
    threshold: int = Field(
        default=0, ge=0, le=10**6, description="shares that open a client's secret; 0 is a majority, or as planned"
    )
    dropout: BelowOne = Field(default=0.1, description="not complete: the share of a cohort that may drop out")
    collusion: Annotated[float, Field(ge=-1, lt=1)] = Field(
        default=-1.0,
        description="the share of all clients, clients.count, that may help the server; -1 is none, or against an "
        "active server just under a third of a session. An active server can invite all of them to one session: every "
        "session withstands c = floor(collusion * clients.count), and every sum has c + 2 clients or more. Of a circle "
        "of T they leave T - c",
    )
    collusion_of: Literal["roster", "session"] = Field(
        default="roster",
        description="of whom collusion is a share; session is what it was in earlier versions, and only for their runs",
    )
    threads: int = Field(
        default=-1, ge=-1, le=1024, description="threads that mask and unmask; -1 is one for each core"
    )


class NoiseSettings(NamedSection):
    """Differential privacy: noise that each client adds before masking, so that no sum is ever seen without it."""

    kind: Annotated[str, OneOf("none", DISTRIBUTIONS)] = Field(
        default="none", description="the distribution of the noise"
    )
    clip_norm: Positive = Field(default=1.0, description="updates are scaled down to this Euclidean norm at most")
    multiplier: Positive = Field(default=1.0, description="deviation of the noise in a sum, in units of clip_norm")
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description="the delta for which epsilon is stated"
    )


class TrackingSettings(Section):
    """Where else to report; JSONL, CSV and the console always are."""

    tensorboard: bool = Field(default=False, description="write TensorBoard events into the run folder")
    mlflow: bool = Field(default=False, description="report to MLflow, at MLFLOW_TRACKING_URI if that is set")
    sums: bool = Field(
        default=False,
        description="keep the mean update that each round revealed, which the server sees anyway, in the folder sums: "
        "for coterie attack differencing",
    )


class RunConfig(Section):
    """Everything about a run."""

    name: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")] = Field(
        default="", description="what the run folder is called, before its time; empty is the name of the data"
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="decides data, order, selection, faults and rounding; never a key or a mask",
    )
    rounds: Count = Field(default=100, description="how many rounds to play")
    data: DataSettings = DataSettings()
    partition: PartitionSettings = PartitionSettings()
    model: ModelSettings = ModelSettings()
    clients: ClientSettings = ClientSettings()
    availability: AvailabilitySettings = AvailabilitySettings()
    faults: FaultSettings = FaultSettings()
    cohort: CohortSettings = CohortSettings()
    training: TrainingSettings = TrainingSettings()
    aggregation: AggregationSettings = AggregationSettings()
    noise: NoiseSettings = NoiseSettings()
    ditto: DittoSettings = DittoSettings()
    sdp: PrivateDescentSettings = PrivateDescentSettings()
    confined: ConfinedSettings = ConfinedSettings()
    tracking: TrackingSettings = TrackingSettings()

    def problems(self) -> Iterator[Contradiction]:
        """Yield what contradicts across sections."""
        return contradictions({name: getattr(self, name) for name in type(self).model_fields})

    @property
    def title(self) -> str:
        """What the run is called: its name, or that of its data with no signs that folders cannot have."""
        return self.name or re.sub(r"[^A-Za-z0-9]+", "-", self.data.name).strip("-")

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm that the run learns by."""
        return ALGORITHMS[self.training.algorithm]


def contradictions(sections: Mapping[str, Any]) -> Iterator[Contradiction]:
    """Yield what contradicts between these sections; where some are missing, what can be said without them."""
    training = sections.get("training")
    for check in ALGORITHMS[training.algorithm].checks if training else ():
        needed = inspect.signature(check).parameters
        if sections.keys() >= needed.keys():
            yield from check(**{name: sections[name] for name in needed})
