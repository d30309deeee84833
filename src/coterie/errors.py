"""All errors that Coterie raises on purpose, grouped by the party at fault, so that a caller knows what to do.

::

    CoterieError
    ├── ConfigError             settings contradict each other or cannot be met; nothing was sent
    │   └── OverflowRisk        the ring is too small for the sum
    ├── InputError              an array, a weight or a log cannot be used; nothing was sent
    │   ├── LogTooLarge         a log is above the limit; it was not read, or not to the end
    │   ├── SeveralRuns         a log has several histories; choose one, or audit each
    │   └── SplitCircle         a policy selected part of a circle; fix the policy
    ├── LocalProtocolError      the calling program used the protocol wrongly; fix the program
    │   └── LedgerConflict      two servers write to one ledger; run one of them
    ├── PeerProtocolError       the other side broke the protocol; drop it and continue
    │   └── PrekeyRefused       a session uses a one-time key that was used before or is unknown; offer new ones
    ├── VerificationError       bytes failed verification; the caller knows which party sent them
    ├── LedgerTampered          the stored history was changed; do not rely on it
    ├── RoundAborted            no party, or none that can be identified; this round has no result
    │   ├── ThresholdError      too few clients are left
    │   ├── PartialSumRisk      the survivors' graph is not connected
    │   ├── SeparationRisk      the sum would isolate too few clients
    │   ├── WrongShares         revealed shares do not fit together; the error says who is at fault, if it can be proven
    │   └── TooFewHonest        colluders could subtract themselves from the sum and isolate one honest member
    ├── TrainingError           a client's training failed, or a worker process was lost
    │   ├── NotSendable         the model or its data cannot be sent to a worker; train in this process
    │   └── NothingTrained      consecutive rounds had no result; the error has the clients' reasons
    ├── CarrierError            message transport failed for too long; restart, nothing is lost
    └── Cancelled               no party: the result is no longer needed

Beside them, :class:`RunInterrupted` is a :class:`KeyboardInterrupt`: the user stopped ``coterie.train`` with Ctrl-C.

No error message ever contains key material, a share, a mask or an input.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

_NAMES_SHOWN = 5


class Remedy(NamedTuple):
    """A parameter that resolves an error, and the value to set; None if only the caller knows the value.

    A message shows it as in Python, for example ``keep_order=True``. The command line shows its own option instead.
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
    """The text of an error, with the positions of the parameters in it."""

    __slots__ = ("parts",)
    parts: tuple[str | Remedy, ...]

    def __new__(cls, *parts: str | Remedy) -> Self:
        """Join the parts. Parts that are an :class:`ErrorText` keep their parameters."""
        flat = [inner for part in parts for inner in (part.parts if isinstance(part, ErrorText) else (part,))]
        text = super().__new__(cls, "".join(map(str, flat)))
        text.parts = tuple(flat)
        return text

    def spelled(self, spell: Callable[[Remedy], str]) -> str:
        """Return the text with each parameter formatted by ``spell``."""
        return "".join(spell(part) if isinstance(part, Remedy) else part for part in self.parts)


class CoterieError(Exception):
    """Base class of all errors that Coterie raises on purpose.

    The text may be given in parts, some of which are parameters that resolve the error (:class:`Remedy`).
    """

    about: str = ""
    """One word for what was refused, for a peer that must not see the text."""

    def __init__(self, *parts: str | Remedy) -> None:
        self.text = ErrorText(*parts)
        super().__init__(self.text)

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The parameters that resolve the error."""
        return tuple(part for part in self.text.parts if isinstance(part, Remedy))


class ConfigError(CoterieError, ValueError):
    """Settings contradict each other or cannot be met."""


class InputError(CoterieError, ValueError):
    """A vector, weight, array or log cannot be used. Raised before anything is sent."""


class LogTooLarge(InputError):
    """A log is above the size limit. It was not read, or not to the end."""


class SeveralRuns(InputError):
    """A log has several histories, in which the same rounds may occur.

    ``column`` tells them apart, and ``values`` are its values.
    """

    def __init__(self, column: str, values: Sequence[str], *parts: str | Remedy) -> None:
        self.column = column
        self.values = tuple(values)
        super().__init__(*parts)


class SplitCircle(InputError):
    """A policy selected part of a circle that it keeps together. No client was invited.

    ``policy`` is its name, ``circle`` the number of the circle and ``missing`` its members that were not selected.
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
    """The calling program requested something that the protocol does not allow in its current state."""


class LedgerConflict(LocalProtocolError):
    """Another server wrote first or holds the ledger. Nothing was recorded, so nothing may be revealed."""


class PeerProtocolError(CoterieError):
    """The other side sent something that the protocol does not allow."""

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(f"{peer}: {reason}")
        self.peer = peer
        self.reason = reason


class PrekeyRefused(PeerProtocolError):
    """A session uses a prekey of this client that was used before, discarded, or is unknown. Nothing was sent.

    A malicious server may cause it. So does an honest one after the client's or the server's store was replaced or
    restored from a backup. The client takes part again once it has offered new prekeys.
    """


class VerificationError(CoterieError):
    """A ciphertext, signature, key or share failed verification. The message never contains its content."""


class LedgerTampered(CoterieError):
    """The stored history is not the one that was written. ``sequence`` is the first entry that shows it."""

    def __init__(self, sequence: int, reason: str) -> None:
        super().__init__(f"ledger entry {sequence}: {reason}")
        self.sequence = sequence
        self.reason = reason


class RoundAborted(CoterieError):
    """The round ends without a result. The model does not change."""


class ThresholdError(RoundAborted):
    """Too few clients are left to remove every mask (Theorem 1 of the CCESA paper).

    ``shortfall`` maps every client whose masks could not be removed to the numbers of shares received and needed. It is
    empty if the round ended before any share was requested.
    """

    def __init__(self, reason: str, shortfall: Mapping[str, tuple[int, int]] | None = None) -> None:
        super().__init__(reason)
        self.shortfall = dict(shortfall or {})


class PartialSumRisk(RoundAborted):
    """The survivors' graph is not connected, so unmasking would expose a partial sum (Theorem 2, CCESA)."""


class Separation(NamedTuple):
    """A group of clients too small for the promise, and the earlier round that makes it visible.

    ``round`` is the latest round that contained these clients together with those from which they would now be
    separated. For clients never aggregated before, it is the latest round that contained other clients of the row
    without them, or ``None`` if there is none, because the row itself is too small.
    """

    clients: tuple[str, ...]
    round: int | None


class SeparationRisk(RoundAborted):
    """Opening this sum would break the promised strong T (So et al. 2023, eq. 5). Nothing was opened.

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


class Blame(NamedTuple):
    """The clients that dealt or sent wrong shares, as far as the server can prove it.

    A share that does not fit, or is missing from an answer, is a dispute: its dealer or its holder broke the protocol.
    """

    proven: tuple[str, ...] = ()
    """Clients that broke the protocol, provided that the session has no more faulty clients than it tolerates."""
    disputes: tuple[tuple[str, str], ...] = ()
    """Pairs of a dealer and a holder, one of whom broke the protocol, under the same condition; unknown which one."""

    def __str__(self) -> str:
        parts = []
        if self.proven:
            parts.append(f"{_listed(self.proven)} dealt or sent wrong shares: leave out of later rounds")
        if self.disputes:
            pairs = _listed([f"{dealer} / {holder}" for dealer, holder in self.disputes])
            parts.append(f"one of each pair (dealer / holder) dealt or sent a wrong share: {pairs}")
        return "; ".join(parts) or "too few shares are left to prove who dealt or sent wrong ones"


class WrongShares(RoundAborted):
    """Masks of some clients cannot be removed, because revealed shares do not fit together or are missing.

    ``clients`` are those whose masks stay, and ``blame`` says who is at fault.
    """

    def __init__(self, clients: Sequence[str], blame: Blame) -> None:
        super().__init__(f"the shares of {_listed(clients)} do not open their secrets: {blame}")
        self.clients = tuple(clients)
        self.blame = blame


class TooFewHonest(RoundAborted):
    """The sum would have fewer than two honest members, given the possible colluders. Nothing was sent."""


class TrainingError(CoterieError):
    """A client could not be trained, or a worker process was lost."""


class NotSendable(TrainingError):
    """Model, loss or examples cannot be sent to another process."""


class NothingTrained(TrainingError):
    """Consecutive rounds had no result, so the model did not change.

    ``reasons`` maps each client of the last of these rounds to its reason.
    """

    def __init__(self, what: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(what)
        self.reasons = dict(reasons or {})


class CarrierError(CoterieError):
    """The transport between the server and its clients failed for longer than a step may take."""


class Cancelled(CoterieError):
    """The work was cancelled because its result is no longer needed."""


@contextmanager
def regarding(about: str) -> Iterator[None]:
    """Set ``about`` on every error raised inside the block, unless the error has one."""
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


class RunInterrupted(KeyboardInterrupt):
    """The user stopped ``coterie.train`` with Ctrl-C, or a notebook's stop button. The run's folder can be resumed.

    It is neither a :class:`CoterieError` nor an :class:`Exception`, so that error handlers do not catch it by accident.
    """

    def __init__(self, folder: str, played: int, planned: int) -> None:
        self.folder, self.played, self.planned = folder, played, planned
        super().__init__(
            f"interrupted after {played:,} of {planned:,} rounds. To continue, call train with the same arguments, "
            f"out={folder!r} and resume=True; the result is the same as without the interruption"
        )

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]
