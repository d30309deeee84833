"""The findings of an audit as text: the same verdict for terminal, page and pipeline.

Names come from untrusted logs. They pass through :func:`~coterie.reports.words.printable`; the caller escapes markup.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from coterie.auditing.findings import AuditReport, Coefficients, Exposure
from coterie.reports.words import Level, count, printable

_VULGAR = {Fraction(1, 2): "½", Fraction(1, 3): "⅓", Fraction(2, 3): "⅔", Fraction(1, 4): "¼", Fraction(3, 4): "¾"}
_SHOWN_TERMS = 8  # above this number, rounds are counted instead of listed
_SHOWN_DIGITS = 12


class Verdict(NamedTuple):
    """The summary of an audit."""

    level: Level
    headline: str
    meaning: str
    advice: str


class Measure(NamedTuple):
    """One number of the audit, as shown."""

    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Requirement:
    """The T that a history must have, after the collusion that the audit assumes, if any."""

    privacy: int
    weak: bool = False
    recipes: int = 1
    """The number of recipes (ways to make contributions) in the log. With more than one, no T is shown."""

    def holds(self, report: AuditReport) -> bool | None:
        """Return whether the requirement holds; None if undecided. If nothing was revealed, every requirement holds."""
        least, most = self._bounds(report)
        if least is None or most is None:
            return True
        if self.recipes > 1:
            return False
        if least >= self.privacy:
            return True if report.complete else None
        return False if most < self.privacy else None

    def words(self, report: AuditReport) -> str:
        """Return the result as one sentence."""
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
    """Return the verdict: a headline, its meaning, and what to do."""
    verdict = judge_what_was_read(report)
    if not report.unread:
        return verdict
    unread = f"{count(report.unread, 'line')} of the log could not be read"
    if verdict.level is not Level.SAFE:
        return verdict._replace(headline=f"{verdict.headline}; {unread}")
    return Verdict(
        Level.CAUTION,
        f"{unread}. Of the rest: {verdict.headline}",
        f"{verdict.meaning} A line that could not be read may have a sum that changes this.",
        "Correct the lines that could not be read, and audit the log again.",
    )


def judge_what_was_read(report: AuditReport) -> Verdict:
    """Return the verdict on the lines that could be used."""
    strong, weak, exposed = report.strong_privacy, report.weak_privacy, report.exposed
    if not report.complete:
        return Verdict(
            Level.DANGER if exposed else Level.CAUTION,
            f"The audit was interrupted: {count(len(exposed), 'exposed client')} found so far",
            "All clients listed as exposed are exposed. There may be more, and T may be lower than shown here.",
            "Run the audit again and let it finish.",
        )
    if strong is None or weak is None:
        return Verdict(
            Level.NOTHING,
            "No client was ever aggregated: the server has learned nothing",
            "The log has no round that revealed a sum.",
            "Check that this is the right log.",
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
            "Adding and subtracting the sums of several rounds yields the contribution of a single client, although "
            "every round by itself was protected by secure aggregation. The result is exact if a client "
            "contributes the same each time, and close if its contribution changes little.",
            "What was revealed cannot be taken back: exposed clients stay exposed. From now on, form cohorts "
            "as unions of fixed circles (policy multi-round), sum a circle as a whole or not at all, and let the "
            "ledger refuse every round that would split one.",
        )
    if strong == 1:
        alone, total = sum(len(group) == 1 for group in report.groups), len(report.clients)
        subject = f"{alone:,} of {count(total, 'client')} {'has' if alone == 1 else 'have'} a unique history"
        return Verdict(
            Level.CAUTION,
            f"Strong T is 1: {subject}. No client is exposed yet",
            "A client is hidden among the clients that were always aggregated together with it, and some have no such "
            "companion. No client's contribution can be computed alone so far, but weighted combinations of several "
            "clients can. One client may dominate such a combination, and every further round can only bring exposure "
            "closer.",
            "Do not wait for the round that exposes a client: form cohorts as unions of fixed circles (policy "
            "multi-round), and let the ledger refuse every round that would split one.",
        )
    return Verdict(
        Level.SAFE,
        f"No client can be singled out by adding and subtracting sums: every sum hides at least {strong:,} clients",
        f"Whatever rounds the server adds or subtracts, each client stays inside the sum of a group of {strong:,} or "
        "more clients that were always aggregated together. What that sum itself says about them is not bounded.",
        "One round that splits a group would end this guarantee. A ledger refuses such a round before it is revealed.",
    )


def least_leak(report: AuditReport) -> str | None:
    """Return the smallest combination as an equation, if it uses more than one round; None otherwise."""
    if report.leak is None or report.strong_privacy != 1 or report.exposed or len(report.leak.witness) < 2:
        return None
    return equation(report.leak.witness, report.leak.clients)


def collusion_words(report: AuditReport) -> str | None:
    """Return what is left of the guarantee if members of a group collude with the server."""
    collusion = report.collusion
    if collusion is None or collusion.strong_privacy is None:
        return None
    members = count(collusion.members, "colluding member")
    if not collusion.unprotected:
        return f"With {members} in each group, every honest client still hides among {collusion.strong_privacy:,}."
    total = f"{len(collusion.unprotected):,} of {count(len(report.clients), 'client')}"
    return f"With {members} in a group, {total} could be alone: no other honest client is left in their groups."


def extent(report: AuditReport, skipped: int) -> str:
    """Return how much was audited. ``skipped`` is the number of rounds without clients."""
    idle = sum(not times for times in report.frequency.values())
    clients = count(len(report.clients), "client") + (f" ({idle:,} never aggregated)" if idle else "")
    rounds = count(len(report.rounds), "round") + (f" ({skipped:,} without clients)" if skipped else "")
    return f"{clients}, {rounds}"


def measures(report: AuditReport) -> list[Measure]:
    """Return the numbers of the audit, each with its meaning."""
    return [
        Measure(
            "Strong T",
            _number(report.strong_privacy),
            "the size of the smallest group of clients that the sums never separate",
        ),
        Measure("Weak T", *_weak(report)),
        Measure("Exposed", f"{len(report.exposed):,}", _exposed(report)),
        Measure("Fairness gap F", f"{report.fairness_gap:.3f}", "between the most and the least frequent client"),
        Measure("Cardinality C", f"{report.cardinality:,.2f}", "clients aggregated in a round on average"),
    ]


def _exposed(report: AuditReport) -> str:
    if report.exposed:
        return f"since round {printable(report.exposed[0].round)} at the earliest"
    return "no client's own update can be computed" if report.complete else "found before the audit was interrupted"


def _weak(report: AuditReport) -> tuple[str, str]:
    least, most = report.weak_privacy_at_least, report.weak_privacy
    involved = "the fewest clients in any combination"
    if report.weak_privacy_exact:
        return _number(most), f"{involved} (exact)"
    return (
        f"{_number(least)}–{_number(most)}",
        f"{involved}: proved bounds, not the exact number; more time may narrow them",
    )


def affordable(exposed: Sequence[Exposure], limit: int | None = None, digits: int = 1_250_000) -> int:
    """Return how many witnesses to write out: ``limit``, or as many as fill ``digits`` digits.

    A witness over r independent rounds has up to r coefficients of about r digits, computed in exact arithmetic. That
    is negligible for a hundred rounds, but a megabyte and some seconds for each witness over a thousand. By default all
    exposed clients get a witness at 120 clients, and only the first one at 1,000.
    """
    if limit is not None:
        return min(limit, len(exposed))
    for number, exposure in enumerate(exposed):
        if digits <= 0:
            return number
        digits -= sum(map(digits_of, exposure.witness.values()))
    return len(exposed)


def equation(terms: Coefficients, clients: Mapping[str, Fraction]) -> str:
    """Return a verified combination as text: "round 3 − round 7 + ½·round 9 = client 17's update"."""
    rounds = _sum([(f"round {printable(label)}", value) for label, value in terms.items()])
    updates = _sum([(f"{whose(client)}'s update", value) for client, value in clients.items()])
    rounds = rounds or f"a combination of {count(len(terms), 'round')}"
    updates = updates or f"a combination of the updates of {count(len(clients), 'client')}"
    return f"{rounds} = {updates}"


def _sum(terms: Sequence[tuple[str, Fraction]]) -> str | None:
    """Return a linear combination as text, or None if that would be unreadable. Shortened names may be equal."""
    if len(terms) > _SHOWN_TERMS or any(digits_of(value) > _SHOWN_DIGITS for _, value in terms):
        return None
    text = ""
    for name, value in terms:
        size = abs(value)
        factor = "" if size == 1 else f"{_VULGAR.get(size, size)}·"
        sign = ("−" if value < 0 else "") if not text else (" − " if value < 0 else " + ")
        text += sign + factor + name
    return text


def digits_of(value: Fraction) -> int:
    """Return roughly how many decimal digits a fraction has; an exact count would cost as much as printing it."""
    bits = value.numerator.bit_length() + (value.denominator.bit_length() if value.denominator > 1 else 0)
    return int(bits * 0.30103) + 1


def whose(client: str) -> str:
    """Return a client's name for use in a sentence; plain numbers become "client 17"."""
    return f"client {printable(client)}" if client.isdecimal() else printable(client)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
