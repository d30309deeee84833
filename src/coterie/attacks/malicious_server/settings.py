"""Settings of the attack by a malicious server."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

from coterie.errors import ConfigError
from coterie.settings import DATASETS, DataDir, Option, Seed, Settings, Trials

FEWEST = 4


@dataclass(frozen=True)
class MaliciousServerSettings(Settings):
    """Lies of a malicious server to real clients: each is tried without the rule against it, and with the rule.

    The server asks for both kinds of share, sends clients different lists, breaks and splits circles, distributes its
    own keys, surrounds a client with fake clients, and sends clients different models. The result is shown as a
    picture: the client's input without the rule; noise or nothing with it. Under honest-but-curious terms
    (--mode honest) some lies work despite all rules; the privacy card says which.
    """

    lies: Annotated[
        tuple[str, ...], Option("Try only this lie; may be repeated.", name="--lie", metavar="NAME", default="all")
    ] = ()
    """If empty, all lies."""
    active: Annotated[
        bool,
        Option(
            "Terms against a malicious server, or against an honest-but-curious one.",
            name="--mode",
            values={"active": True, "honest": False},
        ),
    ] = True
    privacy: Annotated[int, Option("Size of a circle, T; 1 is no circles.", least=1, name="--circles", metavar="T")] = 3
    clients: Annotated[int, Option("Clients in a session.", least=FEWEST, most=100)] = 12
    colluders: Annotated[
        int, Option("Clients that collude with the server.", least=0, default="just under a third of the clients")
    ] = 3
    trials: Trials = 3
    """The number of victims; each has its own sessions."""
    tries: Annotated[int, Option("Repetitions of each lie in a session, varied at random.", least=0, most=100_000)] = 4
    data: Annotated[str, Option("Pictures that clients use as their inputs.", table=DATASETS)] = "digits"
    data_dir: DataDir = None
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.privacy > self.clients // 2:
            raise ConfigError(
                f"a circle has at most half of the clients: T = {self.privacy} does not fit {self.clients} clients"
            )
        if self.colluders > (self.clients - 1) // 2:
            raise ConfigError(f"of {self.clients} clients between 0 and {(self.clients - 1) // 2} may collude here")

    @classmethod
    def of(cls, **given: Any) -> Self:  # noqa: ANN401 - the fields of this class
        """Return settings with as many colluders as sessions withstand by default."""
        from coterie.secagg.terms import default_colluders

        return cls(**{"colluders": default_colluders(given.get("clients", cls.clients)), **given})
