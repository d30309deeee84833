"""Named colluders: clients that tell the server their own updates.

The server knows the updates of colluders, so it can subtract them from every sum. What it learns about the others is
what the participation matrix without the colluders' columns reveals. The result is exact for these colluders. What any
C clients could do is in the report of an audit that assumes collusion (:class:`coterie.auditing.findings.Collusion`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from coterie.auditing.auditor import audit
from coterie.auditing.findings import AuditReport, Exposure
from coterie.auditing.verdict import whose
from coterie.cohorts.participation import Participation
from coterie.errors import InputError
from coterie.reports.words import count, printable

_NAMED = 5  # clients named in a sentence


@dataclass(frozen=True)
class NamedColluders:
    """What the sums reveal to a server and these colluding clients."""

    names: tuple[str, ...]
    strong_privacy: int | None
    """Strong T of the other clients; None if no sum has one of them."""
    exposed: tuple[Exposure, ...]
    """The other clients whose updates can be computed. Their witnesses may also contain updates of colluders."""
    by_collusion: int
    """The number of clients that are exposed only because of the colluders."""

    def words(self) -> str:
        """Return the result as text."""
        them = count(len(self.names), "colluder")
        if self.strong_privacy is None:
            return f"With {them}, there is nothing to learn: no sum has another client."
        if not self.exposed and self.strong_privacy == 1:
            return (
                f"With {them}, no other client is exposed, but some have a unique history: strong T of the others is 1."
            )
        if not self.exposed:
            return f"With {them}, every other client still hides among {self.strong_privacy:,} or more."
        named = ", ".join(whose(found.client) for found in self.exposed[:_NAMED])
        more = ", ..." if len(self.exposed) > _NAMED else "."
        clients = count(len(self.exposed), "other client is", "other clients are")
        already = f"{len(self.exposed) - self.by_collusion or 'none'} without the collusion"
        return f"With {them}, {clients} exposed ({already}): {named}{more}"


def find_clients(given: Sequence[str], clients: Collection[str]) -> tuple[str, ...]:
    """Return the clients that a user names: each text is a name, or several names separated by commas."""
    known, found = set(clients), dict[str, None]()
    for text in given:
        names = [text] if text in known else [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                near = get_close_matches(name, [*known], 1)
                hint = f"; did you mean {printable(near[0])}?" if near else _examples(clients)
                if name.startswith("any"):
                    hint = "; for any clients, give a number from 1 on, as in “any 5”"
                raise InputError(f"the log has no client {printable(name)}{hint}")
            found[name] = None
    return tuple(found)


def _examples(clients: Collection[str]) -> str:
    """Return the names of a few clients of the log."""
    named = ", ".join(printable(client) for client in list(clients)[:_NAMED])
    return f"; its {count(len(clients), 'client')}: {named}{', ...' if len(clients) > _NAMED else ''}"


def collude(participation: Participation, names: Collection[str], exposed: Collection[str] = ()) -> NamedColluders:
    """Audit the log without the columns of the colluders ``names``; ``exposed`` are exposed without collusion."""
    members = {at for at, client in enumerate(participation.clients) if client in names}
    honest = [at for at in range(len(participation.clients)) if at not in members]
    place = {at: number for number, at in enumerate(honest)}
    rows = tuple([[place[at] for at in row if at in place] for row in participation.members])
    left = replace(participation, clients=tuple([participation.clients[at] for at in honest]), members=rows)
    report = audit(left, weak_budget_seconds=0.0)
    others = [found for found in report.exposed if found.client not in exposed]
    return NamedColluders(tuple(names), report.strong_privacy, report.exposed, len(others))


@dataclass(frozen=True)
class AnyColluders:
    """Whether some group of ``members`` clients, together with the server, can isolate another client."""

    members: int
    isolate: bool | None
    """None if the time for weak T was too short to decide it."""
    alone: bool = False
    """Whether the server can compute the update of a client without any help."""

    def words(self) -> str:
        """Return the result as text."""
        if self.alone:
            return "The server needs no colluders: it alone can compute the update of an exposed client."
        one = self.members == 1
        group = "one client" if one else f"some group of {count(self.members, 'client')}"
        none = "No client" if one else f"No group of {count(self.members, 'client')}"
        together = "together with the server could compute another client's update"
        return {
            True: f"{group[0].upper()}{group[1:]} {together}.",
            False: f"{none} together with the server can compute another client's update.",
            None: f"Not decided in time: whether {group} {together}.",
        }[self.isolate]


def judge_any(report: AuditReport, members: int) -> AnyColluders:
    """Decide by weak T whether any ``members`` colluders can isolate a client.

    A combination of sums that involves w clients isolates one of them if the other w - 1 collude; there is no other
    way. So colluders can isolate a client if and only if weak T is at most ``members`` + 1.
    """
    most, least = report.weak_privacy, report.weak_privacy_at_least
    if most is None or least is None:
        return AnyColluders(members, isolate=False)
    if most <= members + 1:
        return AnyColluders(members, isolate=True, alone=bool(report.exposed))
    return AnyColluders(members, isolate=False if least > members + 1 and report.complete else None)
