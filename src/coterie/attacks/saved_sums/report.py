"""The report on saved sums: the clients that they determine, since which round, and whether updates were constant."""

from collections.abc import Iterator

import numpy as np

from coterie.attacks.saved_sums.measure import RecordedDifferencing, SumsAudit
from coterie.auditing.auditor import AuditReport
from coterie.cohorts.participation import Participation
from coterie.reports.charts import Figure, draw_line, make_layout
from coterie.reports.findings import CardLine, Effect, Findings, Plot, Table
from coterie.reports.words import Level, count, printable

_LISTED = 20  # clients in a table
_CAPTION = "After this many rounds, in exact arithmetic. The upper end is the number of clients in the sums."
_CONSTANT = 0.05  # updates count as constant if they leave less than this share of the sums unexplained


def report(_attack: RecordedDifferencing, measured: SumsAudit) -> Findings:
    """Report on which clients the sums determine."""
    audited, participation, matrix = measured.audited, measured.participation, measured.matrix
    open_share = measured.unexplained
    exposed, seen = audited.exposed, int(matrix.any(0).sum())
    rounds = count(len(participation.rounds), "sum")
    spare = len(matrix) - int(np.linalg.matrix_rank(matrix.astype(np.float64)))
    constant = bool(spare) and open_share < _CONSTANT
    if exposed:
        worth = "which hardly changed" if constant else "if they did not change"
        headline = f"{rounds} determine the updates of {count(len(exposed), 'client')} of {seen}, {worth}."
    else:
        headline = f"{rounds} determine no single client's update; the smallest group is of {audited.strong_privacy}."
    strong = audited.strong_privacy or 0
    level = Level.DANGER if exposed else Level.SAFE if strong > 1 else Level.CAUTION
    return Findings(
        level=level,
        headlines=[headline],
        about=f"{rounds} over {count(seen, 'client')}, from a log and saved means. The clients' true updates are not "
        "known here, so the error of a reconstruction is not known.",
        numbers={
            "rounds": len(participation.rounds),
            "clients": seen,
            "strong_privacy": audited.strong_privacy,
            "determined": [exposure.client for exposure in exposed],
            "determined_since": {exposure.client: exposure.round for exposure in exposed},
            "unexplained": open_share if spare else None,
            "spare_sums": spare,
            "written_to": measured.written_to,
        },
        tables=[_table(audited)] if exposed else [],
        card=[_line(audited, strong)],
        plots=[Plot("Clients that the sums determine", draw_determined(audited, participation, seen), _CAPTION)],
        remarks=list(_remarks(measured, spare)),
    )


def _line(audited: AuditReport, strong: int) -> CardLine:
    attack, against = "single out a client's update", "these cohorts"
    if audited.exposed:
        why = f"the sums determine the updates of {count(len(audited.exposed), 'client')}"
        return CardLine(attack, against, Effect.NOT_ELIMINATED, why)
    if strong > 1:
        why = f"groups of at least {strong} clients were always aggregated together"
        return CardLine(attack, against, Effect.ELIMINATED, why)
    return CardLine(attack, against, Effect.REDUCED, "no client is determined yet, but clients differ in their rounds")


def _table(audited: AuditReport) -> Table:
    shown = audited.exposed[:_LISTED]
    more = f"and {len(audited.exposed) - _LISTED} more" if len(audited.exposed) > _LISTED else ""
    rows = [(printable(exposure.client), str(exposure.round)) for exposure in shown]
    return Table("Clients whose update the sums determine", ("client", "since round"), rows, more)


def draw_determined(audited: AuditReport, participation: Participation, seen: int) -> Figure:
    """Draw the number of clients whose update the sums determine, after each round."""
    numbers = {label: number for number, label in enumerate(participation.rounds)}
    new = np.bincount([numbers[exposure.round] for exposure in audited.exposed], minlength=len(numbers))
    counts = np.cumsum(new).tolist()
    trace = draw_line(
        "determined",
        range(1, len(counts) + 1),
        counts,
        hover="after %{x} sums<br>%{y} determined",
        shape="hv",
        color="@danger",
        width=2.5,
    )
    layout = make_layout("sums seen", "clients determined", yaxis={"range": [0, 1.05 * seen]}, legend=False)
    return Figure([trace], layout, 280, f"Clients determined over rounds: {counts[-1]} of {seen} after the last.")


def _remarks(measured: SumsAudit, spare: int) -> Iterator[str]:
    open_share = measured.unexplained
    if not spare:
        yield "There are no more independent sums than unknowns: whether updates were constant cannot be seen."
    else:
        changed = "they hardly changed" if open_share < _CONSTANT else "they changed, and estimates are of their mean"
        more = count(spare, "sum")
        yield f"Constant updates leave {open_share:.1%} of the sums unexplained ({more} more than unknowns): {changed}."
    if measured.written_to is not None:
        yield (
            "Written: an estimate for every client in the sums. Where the sums allow several, it is the shortest one; "
            "clients that always took part together get the same. The array determined marks the clients whose "
            "estimate is the only one possible."
        )
