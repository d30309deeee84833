"""Every error Coterie raises on purpose, by who is at fault, which tells a caller what to do.

::

    CoterieError
    ├── ConfigError             the values given contradict each other or cannot be met; nothing was sent
    │   └── OverflowRisk        the ring is too small for the sum
    ├── InputError              an array, a weight or a log that cannot be used; nothing was sent
    │   ├── LogTooLarge         a log above the limit; it was not read, or not to the end
    │   └── SplitCircle         a policy selected part of a circle; fix the policy
    ├── LocalProtocolError      our own caller used the protocol wrongly; fix the program
    │   └── LedgerConflict      two servers write to one ledger; run one of them
    ├── PeerProtocolError       the other side broke the protocol; drop it and go on
    │   └── PrekeyRefused       a session names a one-time key that was used, or never made here; offer new ones
    ├── VerificationError       bytes that do not check out; whoever reads them knows whom to blame
    ├── LedgerTampered          somebody changed the stored history; trust nothing that rests on it
    ├── RoundAborted            nobody, or nobody who can be named; this round yields no result
    │   ├── ThresholdError      too few clients are left
    │   ├── PartialSumRisk      the survivors' graph falls apart
    │   ├── SeparationRisk      the sum would tell too few clients apart
    │   └── TooFewHonest        colluders could subtract themselves from the sum and find one honest member
    ├── TrainingError           a client's training failed, or a worker process was lost
    │   ├── NotSendable         the model or its data cannot be sent to a worker; train in this process
    │   └── NothingTrained      rounds in a row had no result; it says what the clients gave as reasons
    ├── CarrierError            what carries the messages failed for too long; start again, nothing is lost
    └── Cancelled               nobody: the result is not wanted any more

No message of any error ever contains key material, a share, a mask or an input.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

_NAMES_SHOWN = 5


class Remedy(NamedTuple):
    """A parameter that resolves what an error is about, and the value to give it; None if only the caller knows it.

    A message contains it as Python has it, as in ``keep_order=True``. A command line writes its own option instead.
    """

    parameter: str
    value: object = None
    mention: bool = False
    """Whether the message only mentions the parameter, without a value."""

    def __str__(self) -> str:
        if self.mention:
            return self.parameter
        return f"{self.parameter}={'...' if self.value is None else repr(self.value)}"


class ErrorText(str):
    """The text of an error, which remembers where it names a parameter."""

    __slots__ = ("parts",)
    parts: tuple[str | Remedy, ...]

    def __new__(cls, *parts: str | Remedy) -> Self:
        """Join the parts; another text among them keeps its own."""
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, ErrorText) else (part,))]
        text = super().__new__(cls, "".join(map(str, flat)))
        text.parts = tuple(flat)
        return text

    def spelled(self, spell: Callable[[Remedy], str]) -> str:
        """Return the text with its parameters as ``spell`` writes them."""
        return "".join(spell(part) if isinstance(part, Remedy) else part for part in self.parts)


class CoterieError(Exception):
    """Base of everything Coterie raises on purpose.

    Its text may be given in parts, some of which are parameters that help (:class:`Remedy`).
    """

    about: str = ""
    """One word on what was refused, for a peer that must not be told the text."""

    def __init__(self, *parts: str | Remedy) -> None:
        self.text = ErrorText(*parts)
        super().__init__(self.text)

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The parameters that help."""
        return tuple(part for part in self.text.parts if isinstance(part, Remedy))


class ConfigError(CoterieError, ValueError):
    """Parameters that contradict each other or cannot be met."""


class InputError(CoterieError, ValueError):
    """A vector, weight, array or log that cannot be used; raised before anything is sent."""


class LogTooLarge(InputError):
    """A log above the limit: it was not read, or not to the end."""


class SplitCircle(InputError):
    """A policy selected part of a circle that it keeps together; nobody was invited.

    ``policy`` is its name, ``circle`` the number of the circle and ``missing`` who of it was not selected.
    """

    def __init__(self, policy: str, circle: int, missing: Sequence[str]) -> None:
        self.policy = policy
        self.circle = circle
        self.missing = tuple(missing)
        super().__init__(
            f"the policy {policy} split circle {circle}: it selected some of its members without "
            f"{_listed(self.missing)}. A circle is selected whole or not at all"
        )


class OverflowRisk(ConfigError):
    """The ring is too small for the sum: aggregation could wrap around unnoticed."""


class LocalProtocolError(CoterieError):
    """The caller asked for something this state of the protocol does not allow."""


class LedgerConflict(LocalProtocolError):
    """Somebody else wrote first or holds the ledger; nothing was recorded, so nothing may be revealed."""


class PeerProtocolError(CoterieError):
    """The other side sent something the protocol does not allow."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason


class PrekeyRefused(PeerProtocolError):
    """A session names a prekey of this client that it used before, discarded, or does not have; nothing was sent.

    A server that lies may do that, and so does an honest one after the client's disk was restored from a backup or
    replaced, or the server's own store was. The client takes part again once it has offered new prekeys.
    """


class VerificationError(CoterieError):
    """A ciphertext, signature, key or share that does not check out; says what, never its content."""


class LedgerTampered(CoterieError):
    """The stored history is not the one that was written; ``sequence`` is the first entry that shows it."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"ledger entry {sequence}: {reason}")
        self.sequence = sequence
        self.reason = reason


class RoundAborted(CoterieError):
    """The round ends without a result; the model stays as it was."""


class ThresholdError(RoundAborted):
    """Too few clients are left to remove every mask (Theorem 1 of the CCESA paper).

    ``shortfall`` names every client whose masks could not be removed, with the number of shares that
    arrived and the number needed; it is empty where the round ended before any share was asked for.
    """

    def __init__(self, reason: str, shortfall: Mapping[str, tuple[int, int]] | None = None) -> None:
        super().__init__(reason)
        self.shortfall = dict(shortfall or {})


class PartialSumRisk(RoundAborted):
    """The survivors' graph falls apart, so unmasking would expose a partial sum (Theorem 2, CCESA)."""


class Separation(NamedTuple):
    """A group of clients too small for the promise, and the earlier round that makes it visible.

    ``round`` is the latest round in which these clients took part together with those they would now be
    told apart from. For clients never aggregated before it is the latest round in which others of the row
    took part without them, or ``None`` if there is none: the row alone is too small.
    """

    clients: tuple[str, ...]
    round: int | None


class SeparationRisk(RoundAborted):
    """Opening this sum would break the promised strong T (So et al. 2023, eq. 5); nothing was opened.

    ``separations`` lists every group of fewer than ``promised`` clients that the row would isolate.
    """

    def __init__(self, promised: int, separations: Sequence[Separation]) -> None:
        self.promised = promised
        self.separations = tuple(separations)
        groups = "; ".join(_describe(separation) for separation in self.separations[:_NAMES_SHOWN])
        more = len(self.separations) - _NAMES_SHOWN
        super().__init__(
            f"this sum would isolate fewer than the promised {promised} clients: {groups}"
            + (f"; and {more} more groups" if more > 0 else "")
        )


class TooFewHonest(RoundAborted):
    """The sum would hold fewer than two honest members, given how many may collude; nothing was sent."""


class TrainingError(CoterieError):
    """A client could not be trained, or a worker process was lost."""


class NotSendable(TrainingError):
    """Model, loss or examples cannot be sent to another process."""


class NothingTrained(TrainingError):
    """Rounds in a row had no result, so the model is as it was before them.

    ``reasons`` says what became of each client in the last of them, by its name.
    """

    def __init__(self, what: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(what)
        self.reasons = dict(reasons or {})


class CarrierError(CoterieError):
    """What carries the messages between the server and its clients failed for longer than a step may take."""


class Cancelled(CoterieError):
    """The work was given up before it was done, because nobody waits for its result any more."""


@contextmanager
def regarding(about: str) -> Iterator[None]:
    """Give every error that is raised meanwhile this word, unless it has one."""
    try:
        yield
    except CoterieError as error:
        error.about = error.about or about
        raise


def _describe(separation: Separation) -> str:
    clients, since = separation
    reason = "no earlier round contains them or their companions" if since is None else f"because of round {since}"
    return f"{_listed(clients)} ({len(clients)}, {reason})"


def _listed(clients: Sequence[str]) -> str:
    return ", ".join(clients[:_NAMES_SHOWN]) + (", ..." if len(clients) > _NAMES_SHOWN else "")
