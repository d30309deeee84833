"""An audit's findings in words: the same verdict for the terminal, the page and the pipeline.

Names come from logs that anybody may have written: they go through :func:`~coterie.reports.words.printable`, and markup
is for the caller to escape.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from coterie.auditing.findings import AuditReport, Coefficients, Exposure
from coterie.reports.words import Level, count, printable

_VULGAR = {Fraction(1, 2): "½", Fraction(1, 3): "⅓", Fraction(2, 3): "⅔", Fraction(1, 4): "¼", Fraction(3, 4): "¾"}
_SHOWN_TERMS = 8  # more rounds than these are counted, not written out
_SHOWN_DIGITS = 12


class Verdict(NamedTuple):
    """What a person should know first."""

    level: Level
    headline: str
    meaning: str
    advice: str


class Measure(NamedTuple):
    """One number of the audit, as it is shown."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Requirement:
    """The T that a history must have; after the collusion that the audit assumes, if it assumes any."""

    privacy: int
    weak: bool = False
    recipes: int = 1
    """In how many ways contributions were made, as far as the log says: across several, no T is shown."""

    def holds(self, report: AuditReport) -> bool | None:
        """Tell whether it is met; None if there was no time to find out. Nothing revealed meets every requirement."""
        least, most = self._bounds(report)
        if least is None or most is None:
            return True
        if self.recipes > 1:
            return False
        if least >= self.privacy:
            return True if report.complete else None
        return False if most < self.privacy else None

    def words(self, report: AuditReport) -> str:
        """Say it in one sentence."""
        least, most = self._bounds(report)
        notion = "weak" if self.weak else "strong"
        required = f"Required: {notion} T of at least {self.privacy}"
        if report.collusion:
            required += f" with {count(report.collusion.members, 'colluding member')} in a group"
        if least is None:
            return f"{required}. It holds, since nothing was revealed."
        if self.recipes > 1:
            return f"{required}. Not shown: contributions were made by {self.recipes} different recipes."
        if not report.complete and most is not None and most >= self.privacy:
            return f"{required}. Not shown: the audit was interrupted."
        return {
            True: f"{required}. It holds: T is {least if least == most else f'{least} or more'}.",
            False: f"{required}. It does not hold: T is {most if least == most else f'{most} at most'}.",
            None: f"{required}. Not decided in time: T is between {least} and {most}.",
        }[self.holds(report)]

    def _bounds(self, report: AuditReport) -> tuple[int | None, int | None]:
        if self.weak:
            return report.weak_privacy_at_least, report.weak_privacy
        strong = report.collusion.strong_privacy if report.collusion else report.strong_privacy
        return strong, strong


def judge(report: AuditReport) -> Verdict:
    """Put the whole audit into a headline, what it means and what to do."""
    strong, weak, exposed = report.strong_privacy, report.weak_privacy, report.exposed
    if not report.complete:
        return Verdict(
            Level.DANGER if exposed else Level.CAUTION,
            f"The audit was interrupted: {count(len(exposed), 'exposed client')} found so far",
            "Who is listed as exposed is. There may be more, and T may be lower than it says here.",
            "Run the audit again and let it finish.",
        )
    if strong is None or weak is None:
        return Verdict(
            Level.NOTHING,
            "Nobody was ever aggregated: the server has learned nothing",
            "The log has no round that revealed a sum.",
            "Check that this is the log you meant.",
        )
    if exposed:
        first, total = exposed[0], len(report.clients)
        since = f"{whose(first.client)}, since round {printable(first.round)}"
        headline = (
            f"{len(exposed):,} of {total:,} clients are exposed: the server can compute their individual updates "
            f"(first: {since})"
            if len(exposed) > 1
            else f"1 of {count(total, 'client')} is exposed: the server can compute its individual update ({since})"
        )
        return Verdict(
            Level.DANGER,
            headline,
            "Adding and subtracting the sums of several rounds leaves the contribution of one client alone, although "
            "every round by itself was protected by secure aggregation. The result is exact where a client "
            "contributes the same each time, and close where it changes little.",
            "What was revealed cannot be taken back, and whoever is exposed stays exposed. From now on form cohorts "
            "as unions of fixed circles (policy multi-round), sum a circle as a whole or not at all, and let the "
            "ledger refuse every round that would split one.",
        )
    if strong == 1:
        alone, total = sum(len(group) == 1 for group in report.groups), len(report.clients)
        subject = (
            f"{alone:,} of {count(total, 'client')} {'has' if alone == 1 else 'have'} a history like nobody else's"
        )
        return Verdict(
            Level.CAUTION,
            f"Strong T is 1: {subject}. No client is exposed yet",
            "A client hides among those who were always aggregated together with it, and some have no such companion. "
            "Nobody's contribution comes out alone so far, but weighted combinations of several clients do, one client "
            "may dominate such a combination, and every further round can only bring somebody closer to exposure.",
            "Do not wait for the round that exposes somebody: form cohorts as unions of fixed circles (policy "
            "multi-round), and let the ledger refuse every round that would split one.",
        )
    return Verdict(
        Level.SAFE,
        f"No client can be singled out: every sum hides at least {strong:,} clients",
        f"Whatever rounds the server adds or subtracts, each client stays inside the sum of a group of {strong:,} or "
        "more who were always aggregated together.",
        "Keep it so: one round that splits a group ends the guarantee. A ledger refuses such a round before it is "
        "revealed.",
    )


def least_leak(report: AuditReport) -> str | None:
    """Write down the least that can be computed, if that takes more than one round: one round's own sum is no news."""
    if report.leak is None or report.strong_privacy != 1 or report.exposed or len(report.leak.witness) < 2:
        return None
    return equation(report.leak.witness, report.leak.clients)


def collusion_words(report: AuditReport) -> str | None:
    """Say what remains when members of a group collude with the server."""
    collusion = report.collusion
    if collusion is None or collusion.strong_privacy is None:
        return None
    members = count(collusion.members, "colluding member")
    if not collusion.unprotected:
        return f"With {members} in each group, every honest client still hides among {collusion.strong_privacy:,}."
    total = f"{len(collusion.unprotected):,} of {count(len(report.clients), 'client')}"
    return f"With {members} in a group, {total} could stand alone: nobody else is left in their groups."


def extent(report: AuditReport, skipped: int) -> str:
    """Say how much was audited; ``skipped`` is how many rounds aggregated nobody."""
    idle = sum(not times for times in report.frequency.values())
    clients = count(len(report.clients), "client") + (f" ({idle:,} never aggregated)" if idle else "")
    rounds = count(len(report.rounds), "round") + (f" ({skipped:,} of nobody)" if skipped else "")
    return f"{clients}, {rounds}"


def measures(report: AuditReport) -> list[Measure]:
    """List the numbers of the audit with what each says."""
    exposed = report.exposed
    return [
        Measure("Strong T", _number(report.strong_privacy), "the fewest clients that any sum hides"),
        Measure("Weak T", *_weak(report)),
        Measure(
            "Exposed",
            f"{len(exposed):,}",
            f"since round {printable(exposed[0].round)} at the earliest"
            if exposed
            else "nobody's own update can be computed",
        ),
        Measure("Fairness gap F", f"{report.fairness_gap:.3f}", "between the most and the least frequent client"),
        Measure("Cardinality C", f"{report.cardinality:,.2f}", "clients aggregated in a round on average"),
    ]


def _weak(report: AuditReport) -> tuple[str, str]:
    least, most = report.weak_privacy_at_least, report.weak_privacy
    involved = "the fewest clients in any combination"
    if report.weak_privacy_exact:
        return _number(most), f"{involved} (exact)"
    return f"{_number(least)}–{_number(most)}", f"{involved} (more time may tell: --weak-seconds)"


def affordable(exposed: Sequence[Exposure], limit: int | None = None, digits: int = 1_250_000) -> int:
    """Tell how many witnesses to write out: ``limit``, or as many as it takes to fill ``digits`` digits.

    A witness over r independent rounds has up to r coefficients of about r digits, found by exact arithmetic: nothing
    for a hundred rounds, but a megabyte and some seconds for each witness over a thousand. By default everybody gets
    theirs at 120 clients, and only the first does at 1,000.
    """
    if limit is not None:
        return min(limit, len(exposed))
    for number, exposure in enumerate(exposed):
        if digits <= 0:
            return number
        digits -= sum(map(digits_of, exposure.witness.values()))
    return len(exposed)


def equation(terms: Coefficients, clients: Mapping[str, Fraction]) -> str:
    """Write a verified combination of rounds down: "round 3 − round 7 + ½·round 9 = client 17's update"."""
    rounds = _sum({f"round {printable(label)}": value for label, value in terms.items()})
    rounds = rounds or f"a combination of {len(terms):,} rounds"
    result = _sum({f"{whose(client)}'s update": value for client, value in clients.items()})
    return f"{rounds} = {result or f'a combination of the updates of {len(clients):,} clients'}"


def _sum(terms: Mapping[str, Fraction]) -> str | None:
    """Write a linear combination out, or return None if that would be unreadable."""
    if len(terms) > _SHOWN_TERMS or any(digits_of(value) > _SHOWN_DIGITS for value in terms.values()):
        return None
    text = ""
    for name, value in terms.items():
        size = abs(value)
        factor = "" if size == 1 else f"{_VULGAR.get(size, size)}·"
        sign = ("−" if value < 0 else "") if not text else (" − " if value < 0 else " + ")
        text += sign + factor + name
    return text


def digits_of(value: Fraction) -> int:
    """About how many decimal digits a fraction has; counting them exactly would cost as much as writing them."""
    bits = value.numerator.bit_length() + (value.denominator.bit_length() if value.denominator > 1 else 0)
    return int(bits * 0.30103) + 1


def whose(client: str) -> str:
    """Return a client's name as it stands in a sentence: bare numbers are introduced."""
    return f"client {client}" if client.isdecimal() else printable(client)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
