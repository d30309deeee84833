"""The sections of settings that every run has, whatever its algorithm: the default and the meaning of each setting."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from coterie.cohorts import POLICIES
from coterie.cohorts.availability import AVAILABILITIES
from coterie.cohorts.policies import Mode
from coterie.graphs.table import TOPOLOGIES
from coterie.privacy import DISTRIBUTIONS
from coterie.runs.sections.base import (
    BelowOne,
    Contradiction,
    Count,
    NamedSection,
    NotNegative,
    OneOf,
    Positive,
    Section,
    Share,
)
from coterie.secagg.protocols import AUTO, PROTOCOLS
from coterie.training.data.datasets import DATASETS
from coterie.training.data.partitions import PARTITIONS
from coterie.training.metrics import METRICS, USER_METRIC
from coterie.training.models import MODELS

OWN = "own"
"""The name of data, a model or a policy that a Python program passes to ``coterie.train``."""

_PROTECTING = " and ".join(name for name, kind in POLICIES.items() if kind.keeps_circles)
_ADJUSTABLE = ", ".join(name for name, kind in POLICIES.items() if kind.adjustable)
_CONNECTED = ", ".join(name for name, kind in TOPOLOGIES.items() if kind.connect)
_BUNDLED = " and ".join(name for name, source in DATASETS.items() if not source.files)


class DataSettings(NamedSection):
    """The data set."""

    name: Annotated[str, OneOf(DATASETS, OWN, named=True)] = Field(
        default="digits",
        description=f"the data set: {_BUNDLED} come with Coterie, others are read from the folder; own is for "
        "Python programs; or module:function, a function of yours in the current folder that returns examples",
    )
    folder: str = Field(default="", description="the folder of data sets; if empty, the one that COTERIE_DATA names")
    options: dict[str, Any] = Field(
        default={}, description="arguments of the data set's loader or of your function, such as {train_rows = 1000}"
    )
    features: str = Field(
        default="",
        description="an npz file of frozen features in place of a data set: arrays train_x, train_y, test_x and test_y",
    )

    @property
    def title(self) -> str:
        """The name of the data set, or of the file of features."""
        return Path(self.features).name if self.features else self.name

    def problems(self) -> Iterator[Contradiction]:
        """Check that a file of features is not combined with a data set or its options."""
        if self.features and self.name != type(self).model_fields["name"].default:
            yield "features", f"takes the place of the data set; leave name out, which is {self.name}"
        if self.features and self.options:
            yield "options", "must be empty with data.features: a file of features has no options"


class PartitionSettings(NamedSection):
    """Which client has which examples."""

    kind: Annotated[str, OneOf(PARTITIONS)] = Field(
        default="label-shards",
        description="how examples are divided among the clients; data sets that come in parts keep their parts",
    )
    shards: Count = Field(
        default=2, description="label-shards: number of pieces of the data, sorted by label, that each client gets"
    )
    alpha: Positive = Field(default=0.5, description="dirichlet: with a smaller value, clients have fewer labels")
    shared: int = Field(
        default=20, ge=0, le=10**9, description="shared-and-own-label: examples of each label that every client has"
    )
    examples: Count = Field(
        default=20,
        description="sampled: examples that every client draws at random, and that others may have too; for more "
        "clients than there are examples",
    )


class ModelSettings(NamedSection):
    """The model."""

    name: Annotated[str, OneOf(MODELS, OWN, named=True)] = Field(
        default="mlp",
        description="the model; its sizes follow from the data; own is for Python programs; or module:function, a "
        "function of yours in the current folder that returns a torch module",
    )


class ClientSettings(Section):
    """The clients."""

    count: int = Field(default=40, ge=2, le=10**6, description="number of clients; by-person needs one for each person")
    weighting: Literal["uniform", "samples"] = Field(
        default="uniform", description="a client's weight in the mean: the same for all, or the number of its examples"
    )
    holdout: BelowOne = Field(
        default=0.0,
        description="share of each client's examples, one or more, that it keeps for testing and does not train on. "
        "The scores of single clients, and of their own models, are then on these examples",
    )


class AvailabilitySettings(NamedSection):
    """Which clients are available when a round begins."""

    kind: Annotated[str, OneOf(AVAILABILITIES)] = Field(
        default="heterogeneous",
        description="clients are absent with one probability, with one of 0.1, 0.2, ... 0.5 each, by label, or by "
        "time of day",
    )
    dropout: Share = Field(default=0.1, description="equal: the probability of being absent in a round")
    low: Share = Field(default=0.1, description="diurnal: the probability of being absent by day")
    high: Share = Field(default=0.5, description="diurnal: the probability of being absent by night")
    period: Positive = Field(default=24.0, description="diurnal: rounds in a day")

    def problems(self) -> Iterator[Contradiction]:
        """Check that clients are absent less often by day than by night."""
        if self.low > self.high:
            yield "low", f"must not be above high, {self.high}"


StepName: TypeAlias = Literal["advertise", "share", "mask", "confirm", "reveal"]


class FaultSettings(Section):
    """What goes wrong in a round, after clients were selected."""

    dropout: BelowOne = Field(default=0.05, description="probability that a selected client drops out during the round")
    steps: Annotated[tuple[StepName, ...], Field(min_length=1, strict=False)] = Field(
        default=("advertise", "share", "mask", "reveal"), description="steps of the protocol in which they drop out"
    )
    late: BelowOne = Field(default=0.0, description="probability that a client's masked update arrives too late")
    victims: Annotated[tuple[str, ...], Field(strict=False)] = Field(
        default=(), description="names of clients whose packets a network adversary drops, all of them in a round"
    )
    victim_drops: Share = Field(default=1.0, description="probability that it drops those of a victim in a round")


class CohortSettings(Section):
    """Which clients take part in a round, and the privacy that this promises."""

    policy: Annotated[str, OneOf(POLICIES, OWN, named=True)] = Field(
        default="multi-round",
        description=f"how clients are selected; only {_PROTECTING} protect over many rounds; own is for Python "
        "programs; or module:Class, a class of yours in the current folder, whose attribute circles says which clients "
        "it keeps together",
    )
    size: Count = Field(default=8, description="K: clients selected for a round")
    privacy: Count = Field(
        default=2, description=f"{_ADJUSTABLE}, yours: T, the fewest clients that the sums of all rounds can be about"
    )
    mode: Mode = Field(
        default="fair", description=f"{_ADJUSTABLE}: how much to prefer circles that took part less often"
    )
    circles: Literal["random", "similar"] = Field(
        default="random",
        description=f"{_ADJUSTABLE}: circles drawn at random, or of clients that are similarly available",
    )
    survival: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description=f"{_ADJUSTABLE}: share of clients that stay in a round; below 1, more circles are selected",
    )
    minimum: int = Field(default=2, ge=2, le=10**6, description="the fewest clients in a sum")


class ScheduleSettings(NamedSection):
    """How the clients' learning rate changes over the rounds."""

    kind: Literal["constant", "milestones", "inverse", "cosine"] = Field(
        default="cosine", description="constant; times factor at milestones; 1 / (1 + decay t); or half a cosine"
    )
    milestones: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] = Field(
        default=(), description="milestones: the rounds after which the rate is multiplied by factor"
    )
    factor: Positive = Field(default=0.1, description="milestones: the factor")
    decay: NotNegative = Field(default=0.01, description="inverse: how fast the rate falls")
    floor: Share = Field(default=0.0, description="cosine: the final rate, as a share of the initial one")
    rounds: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="cosine, and schedules of algorithms that have their own: number of rounds until the rate stays as "
        "it is; 0 is all rounds that the run begins with, and adding rounds later does not change it",
    )


class TrainingSettings(Section):
    """How clients train, and how the server learns from their updates."""

    algorithm: str = Field(default="", description="the name of the algorithm, which RunConfig checks")
    epochs: Count = Field(default=5, description="passes of a client over its examples in a round")
    batch_size: Count = Field(default=10, description="examples in a step")
    learning_rate: Positive = Field(default=0.1, description="of the clients")
    momentum: BelowOne = Field(default=0.0, description="of the clients; starts from zero in every round")
    weight_decay: NotNegative = Field(default=0.0, description="of the clients")
    shuffle: bool = Field(default=True, description="whether each pass takes the examples in a new order")
    drop_last: bool = Field(
        default=False,
        description="whether a pass leaves out the last examples if they do not fill a batch; a client with fewer "
        "examples than a batch still trains on its only batch",
    )
    server_learning_rate: Positive = Field(default=1.0, description="step size of the server along the mean update")
    server_momentum: BelowOne = Field(default=0.0, description="momentum of the server's steps")
    schedule: ScheduleSettings = Field(default=ScheduleSettings(), description="")
    evaluate_every: Count = Field(
        default=1, description="rounds between two evaluations; the last round is always evaluated"
    )
    metrics: Annotated[tuple[Annotated[str, OneOf(METRICS, named=USER_METRIC)], ...], Field(strict=False)] = Field(
        default=(),
        description="further numbers that models are evaluated by, beside loss and accuracy; or module:function, a "
        "function of yours in the current folder from outputs and targets to a number; with :smaller at the end, "
        "smaller values are better",
    )
    executor: Literal["auto", "processes", "vectorised"] = Field(
        default="vectorised",
        description="train clients in worker processes, or many together as one computation (fast for small models); "
        "auto measures both and records its choice, on which the rounding of sums depends",
    )
    workers: int = Field(
        default=-1, ge=-1, le=1024, description="worker processes; -1 is one for each core, 0 none; changes no result"
    )


class AggregationSettings(NamedSection):
    """How updates are aggregated."""

    kind: Literal["secure", "plain"] = Field(
        default="secure", description="secure: the server sees sums only; plain: it sees every update, for comparison"
    )
    clip: Positive = Field(default=0.5, description="entries of an update are clipped to [-clip, clip]")
    precision: int = Field(default=20, ge=2, le=53, description="bits of an entry")
    threat: Literal["honest-but-curious", "active-server"] = Field(
        default="honest-but-curious",
        description="an honest-but-curious server, or a malicious one: clients then sign their messages",
    )
    protocol: Annotated[str, OneOf(PROTOCOLS)] = Field(
        default=AUTO,
        description="how a session makes its sum: in two-trips, or in the four or five of the papers; auto takes two "
        "trips on the complete graph while a session's clients squared are at most 10,000 times the smallest circle",
    )
    topology: Annotated[str, OneOf(TOPOLOGIES, "auto", named=True)] = Field(
        default="complete",
        description="which clients share secrets with each other; auto is the cheapest graph that withstands what "
        "follows, and complete against a malicious server, because on other graphs T does not hold for parts of a "
        "session; or module:Class, a class of yours in the current folder",
    )
    connection: Share = Field(
        default=0.0, description=f"{_CONNECTED}: probability that two clients share secrets; 0 is the planned one"
    )
    threshold: int = Field(
        default=0, ge=0, le=10**6, description="shares that open a client's secret; 0 is a majority, or as planned"
    )
    dropout: BelowOne = Field(
        default=0.1,
        description="not complete: the probability that a client drops out, which the graph is planned for; a sum of "
        "fewer clients than the plan allows for is refused",
    )
    dropout_of: Literal["client", "session"] = Field(
        default="client",
        description="the meaning of dropout: a probability for each client; session, a share of the clients of a "
        "session, is only for runs of earlier versions",
    )
    collusion: Annotated[float, Field(ge=-1, lt=1)] = Field(
        default=-1.0,
        description="the share of all clients, clients.count, that may help the server; -1 is none, or against an "
        "active server just under a third of a session. An active server can invite all of them to one session: every "
        "session withstands c = floor(collusion * clients.count), and every sum has c + 2 clients or more. A circle of "
        "T clients then counts for T - c honest ones",
    )
    collusion_of: Literal["roster", "session"] = Field(
        default="roster",
        description="the meaning of collusion: a share of all clients; session, a share of the clients of a session, "
        "is only for runs of earlier versions",
    )
    threads: int = Field(
        default=-1, ge=-1, le=1024, description="threads that mask and unmask; -1 is one for each core"
    )


class NoiseSettings(NamedSection):
    """Differential privacy: noise that each client adds before masking, so that the server sees no sum without it."""

    kind: Annotated[str, OneOf("none", DISTRIBUTIONS)] = Field(
        default="none", description="the distribution of the noise"
    )
    clip_norm: Positive = Field(default=1.0, description="updates are scaled down to this Euclidean norm at most")
    multiplier: Positive = Field(default=1.0, description="deviation of the noise in a sum, in units of clip_norm")
    sigma: NotNegative = Field(
        default=0.0,
        description="if not 0, in place of multiplier: deviation of the noise that each client adds to an entry",
    )
    epsilon: NotNegative = Field(
        default=0.0,
        description="if not 0, in place of multiplier: the epsilon of all rounds together, for each client. The least "
        "multiplier that keeps it is computed before the first round and recorded with the run",
    )
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=1e-5, description="the delta for which epsilon is stated"
    )

    def problems(self) -> Iterator[Contradiction]:
        """Check that noise parameters are not given without noise."""
        for key, value in (("sigma", self.sigma), ("epsilon", self.epsilon)):
            if value and self.kind == "none":
                yield (
                    key,
                    f"needs noise.kind, which is none: no noise would be added; set it to {' or '.join(DISTRIBUTIONS)}",
                )
        if self.epsilon and self.sigma:
            yield "epsilon", f"decides how much noise there is, and so does noise.sigma = {self.sigma:g}; give one"


class StoppingSettings(Section):
    """Early stopping: end a run that no longer improves."""

    patience: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="rounds without an improvement after which the run ends; 0 never ends it early",
    )
    metric: Annotated[str, OneOf("quality", "train_loss", METRICS, named=USER_METRIC)] = Field(
        default="quality",
        description="what must improve: quality on the test examples (accuracy, or the loss of a regression), the "
        "clients' training loss, or one of training.metrics",
    )
    min_improvement: NotNegative = Field(
        default=0.0, description="a change of the metric by this much or less is no improvement"
    )


class TrackingSettings(Section):
    """Where to report besides the files in the run folder and the console."""

    tensorboard: bool = Field(default=False, description="write TensorBoard events into the run folder")
    mlflow: bool = Field(default=False, description="report to MLflow, at MLFLOW_TRACKING_URI if that is set")
    sums: bool = Field(
        default=False,
        description="keep the mean update of each round, which the server sees anyway, in the folder sums: for coterie "
        "attack differencing",
    )


class CommonSettings(Section):
    """The settings of a run, without the sections that belong to single algorithms."""

    name: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")] = Field(
        default="", description="name of the run, and of its folder before the time; empty is the name of the data"
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="seed of everything random except keys, masks and noise: data, order, selection, faults, rounding",
    )
    rounds: Count = Field(default=100, description="number of rounds")
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
    stopping: StoppingSettings = StoppingSettings()
    tracking: TrackingSettings = TrackingSettings()

    @property
    def title(self) -> str:
        """The name of the run, or that of its data without characters that folders cannot have."""
        return self.name or re.sub(r"[^A-Za-z0-9]+", "-", self.data.title).strip("-")
