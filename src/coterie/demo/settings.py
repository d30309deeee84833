"""Settings of the demonstration; the command line is derived from them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from coterie.errors import ConfigError
from coterie.settings import MOST_CLIENTS, MOST_LENGTH, MOST_SEED, Option, Settings

if TYPE_CHECKING:
    from coterie.secagg import Step


@dataclass(frozen=True)
class DemoSettings(Settings):
    """Run a real secure aggregation: clients drop out, the sum is exact, and no vector is revealed.

    The clients' vectors are artificial fingerprints. A picture shows what the server received from one of them, and a
    report has every number.
    """

    clients: Annotated[int, Option("Number of clients.", least=3, most=MOST_CLIENTS)] = 100
    length: Annotated[int, Option("Numbers in each client's vector.", least=64, most=MOST_LENGTH)] = 100_000
    """A fingerprint needs some pixels."""
    dropout: Annotated[
        float, Option("Share of the clients that drop out, spread evenly over all steps.", least=0, most=1)
    ] = 0.1
    topology: Annotated[
        str,
        Option(
            "Graph of clients that share secrets.",
            metavar="NAME",
            default="harary; with --active complete",
            table="coterie.graphs.table:searches",
        ),
    ] = "harary"
    active: Annotated[
        bool, Option("Expect a malicious server: clients sign and check.", name="--active/--no-active")
    ] = False
    circle_size: Annotated[
        int | None, Option("Aggregate only whole circles of this size.", least=2, name="--circles", metavar="SIZE")
    ] = None
    seed: Annotated[
        int, Option("Chooses inputs, rounding and dropouts; secrets are always fresh.", least=0, most=MOST_SEED)
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.circle_size is not None and self.circle_size > self.clients:
            raise ConfigError(f"a circle has from 2 to {self.clients} clients, not {self.circle_size}")

    @classmethod
    def of(cls, **given: Any) -> Self:  # noqa: ANN401 - the fields of this class
        """Return settings with the graph that fits the threat, if none is given."""
        return cls(**{"topology": "complete" if given.get("active") else cls.topology, **given})

    @property
    def two_trips(self) -> bool:
        """Whether the session takes two trips: on the complete graph, while that is cheap enough."""
        from coterie.graphs import TOPOLOGIES, Complete
        from coterie.secagg.protocols import two_trips_fit

        kind = TOPOLOGIES.get(self.topology)
        return kind is not None and kind.complete and two_trips_fit(self.clients, self.circle_size or 1, Complete())

    @property
    def steps(self) -> "tuple[Step, ...]":
        """The steps in which clients send messages. In two trips, a confirmation may be added after many losses."""
        from coterie.secagg import Step

        if self.two_trips:
            return (Step.CONTRIBUTE, Step.REVEAL)
        confirm = (Step.CONFIRM,) if self.active else ()
        return (Step.ADVERTISE, Step.SHARE, Step.MASK, *confirm, Step.REVEAL)

    @property
    def masking(self) -> "Step":
        """The step in which clients send their masked vectors."""
        return self.steps[0] if self.two_trips else self.steps[2]

    @property
    def leaving(self) -> int:
        """The number of clients that drop out."""
        return round(self.dropout * self.clients)
