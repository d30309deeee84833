"""The number of colluders to plan a session for, when only some clients of a roster are in it.

A fraction of the *roster* colludes. How many of them are in one session depends on who chooses its clients:

* **A malicious server** chooses the clients, and can gather all colluders in one small session. So every session, of
  any size, is planned for all colluders of the roster, and every circle may contain all of them.
* **An honest-but-curious server** selects at random, independently of who colludes. Then the number of colluders in a
  session is hypergeometric, and so is the number in a circle drawn at random. The plan uses the smallest number that is
  exceeded with a probability below the target. It assumes that availability does not depend on collusion.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, inf, log

from coterie.errors import ConfigError, ErrorText, Remedy
from coterie.graphs.failures import FEWEST_CLIENTS, part_of
from coterie.graphs.tails import at_least, log_hypergeometric, rounded_up, to_log2
from coterie.secagg.terms import MOST_CLIENTS, default_colluders

_LOST = Remedy("lost", mention=True)


@dataclass(frozen=True)
class Colluders:
    """The number of colluders that a session is planned for, the number in the roster, and the reason.

    ``exceeded_log2`` is log2 of the probability that a session has more; ``-inf`` if that cannot happen. ``reason`` is
    a sentence.
    """

    number: int
    of_roster: int
    exceeded_log2: float
    reason: str


def count_colluders(
    clients: int, roster: int, collusion: float | None, *, active: bool, privacy_bits: float
) -> Colluders:
    """Return the colluders that a session of ``clients`` from a ``roster`` is planned for.

    ``collusion`` is a fraction of the roster. Without it, no client colludes with an honest-but-curious server, and
    with a malicious one as many as a session's terms assume.
    """
    never = float("-inf")
    if collusion is None:
        if not active:
            return Colluders(0, 0, never, "no share of colluders is given")
        number = default_colluders(clients)
        reason = "just under a third of a session, because no share of colluders is given"
        if roster > clients:
            reason += f"; it must cover all colluders among the {roster:,} clients: the server chooses whom it invites"
        return Colluders(number, number, never, reason)
    if not 0 <= collusion < 1:
        raise ConfigError(f"collusion is a share of all clients, from 0 to below 1, not {collusion:g}")
    of_roster = part_of(collusion, roster)
    if roster == clients:
        return Colluders(of_roster, of_roster, never, f"{collusion:.3g} of the {clients:,} clients")
    if active:
        reason = f"all colluders of the roster, {collusion:.3g} of {roster:,} clients, may be in one session"
        return Colluders(of_roster, of_roster, never, f"{reason}, since a server that lies chooses whom it invites")
    number, log2_exceeded = random_colluders(roster, of_roster, clients, privacy_bits)
    rarely = f"probability 2^-{privacy_bits:g} (hypergeometric tail)"
    odds = f"puts more than {number:,} of them into a session with at most {rarely}"
    if number == min(clients, of_roster):
        odds = f"puts {number:,} of them into a session with more than {rarely}"
    reason = (
        f"{of_roster:,} of {roster:,} clients collude, and a server that follows the protocol selects at random: it"
    )
    return Colluders(number, of_roster, log2_exceeded, f"{reason} {odds}")


def random_colluders(roster: int, colluding: int, drawn: int, bits: float, times: int = 1) -> tuple[int, float]:
    """Return the smallest c such that more than c of ``drawn`` clients collude with probability at most ``2^-bits``.

    Also return log2 of that probability. The clients are drawn at random from a ``roster`` with ``colluding``
    colluders. With ``times`` draws, which may depend on each other, it is the probability that any of them has more
    than c (union bound).
    """
    law = log_hypergeometric(roster, colluding, drawn)

    def log2_exceeded(number: int) -> float:
        return to_log2(rounded_up(log(times) + at_least(law, number + 1), log(times)))

    most = range(min(drawn, colluding) + 1)
    number = most[bisect_left(most, True, key=lambda candidate: log2_exceeded(candidate) <= -bits)]
    return number, log2_exceeded(number)


def circle_colluders(roster: int, colluding: int, privacy: int, *, active: bool, bits: float) -> int:
    """Return c, the number of colluders that a circle of T = ``privacy`` may have; T - c honest members are left.

    Circles are drawn at random. Against a malicious server this is not guaranteed: all colluders may share a circle. (A
    circle larger than T has at least as many honest members: without its extra members it is a circle of T.)
    """
    if active:
        return min(colluding, privacy)
    return random_colluders(roster, colluding, privacy, bits, times=max(1, roster // privacy))[0]


def most_colluders(clients: int, lost: float) -> int:
    """Return the largest number of colluders that a session withstands against a malicious server; -1 if not even 0.

    With the average number of lost clients, ``d = floor(lost n)``, two honest clients must be left beside the
    colluders, ``c + 2 <= n - d``, and a quorum must be left to sign, ``2 d + c < n``. The plan states separately how
    often more clients are lost.
    """
    dropped = part_of(lost, clients)
    return max(-1, min(clients - dropped - 2, clients - 2 * dropped - 1)) if clients >= FEWEST_CLIENTS else -1


def least_session(colluders: int, lost: float) -> int | None:
    """Return a number of clients such that every session of at least this size withstands this many colluders.

    A smaller session may be enough if floor(lost n) happens to be small. None if no number is enough.
    """
    if lost >= 1 / 2:
        return None
    return max(FEWEST_CLIENTS, ceil((colluders + 1) / (1 - 2 * lost)), ceil((colluders + 2) / (1 - lost)))


def check_lost(lost: float) -> None:
    """Refuse a value that is not a probability of being lost in a round."""
    if not 0 <= lost < 1:
        raise ConfigError(
            _LOST, f" is the probability that a client is lost in a round, from 0 to below 1, not {lost:g}"
        )


def check_bits(name: str, bits: float) -> None:
    """Refuse a failure target of 2^-bits that is no probability, or 0."""
    if not 0 <= bits < inf:
        raise ConfigError(f"{name} is a finite number of bits, at least 0, not {bits}")


def check_session(clients: int, colluders: Colluders, lost: float, roster: int) -> None:
    """Refuse a session that is too small for the colluders that a malicious server may gather in it, with advice."""
    most = most_colluders(clients, lost)
    if colluders.number <= most:
        return
    helps: list[ErrorText] = []
    least = least_session(colluders.number, lost)
    if least is not None and least <= min(roster, MOST_CLIENTS):
        helps.append(
            ErrorText(
                f"take sessions of {least:,} clients or more, and let clients refuse smaller ones (Floor.colluders = "
                f"{colluders.number})"
            )
        )
    if most >= 0:
        share = Remedy("collusion", float(f"{most / roster:.3g}"))
        helps.append(ErrorText(f"make sure that at most {most:,} clients of the roster collude (", share, ")"))
    dropped = part_of(lost, clients)
    if dropped:
        helps.append(ErrorText("lose fewer clients in the round (", _LOST, ")"))
    separated = (part for number, text in enumerate(helps) for part in ("; or " if number else "", text))
    raise ConfigError(
        f"no plan exists for sessions of {clients:,} clients and {colluders.number:,} colluders against a server that "
        f"lies: {colluders.reason}. Two honest clients must be in every sum, and a quorum must be left to sign"
        f"{f' when {dropped:,} are lost, as on average' if dropped else ''}. What would help: ",
        *separated,
    )


def check_honest(clients: int, colluders: Colluders) -> None:
    """Refuse a session in which all clients may collude with an honest-but-curious server, with reason and advice."""
    if colluders.number >= clients:
        raise ConfigError(
            f"no plan exists for sessions of {clients:,} clients: all of them may collude. {colluders.reason}. What "
            "would help: larger sessions, or fewer colluders (",
            Remedy("collusion", mention=True),
            ")",
        )


def share_of(part: int, total: int) -> str:
    """Return ``part`` as a fraction of ``total``, with the fewest digits from which :func:`part_of` recovers it."""
    digits = next(digits for digits in range(1, 18) if part_of(float(f"{part / total:.{digits}g}"), total) == part)
    return f"{part / total:.{digits}g}"
