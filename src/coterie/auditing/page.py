"""The page of ``coterie audit --html``: verdict, plots, and the proof of every exposure."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from coterie.auditing.figures import (
    RoundAxis,
    exposure,
    frequency,
    group_sizes,
    participation_map,
    privacy,
    series,
)
from coterie.auditing.findings import AuditReport, Exposure
from coterie.auditing.logs import Participation
from coterie.auditing.preview import evidence_words, gather_evidence, preview
from coterie.auditing.verdict import (
    Requirement,
    affordable,
    collusion_words,
    digits_of,
    equation,
    extent,
    judge,
    least_leak,
    measures,
)
from coterie.reports.html import render
from coterie.reports.words import count, printable

_ROWS = 200  # exposed clients in the table
_WORK = 1_000_000_000  # effort to compute witnesses, if their number is not given
_DETAILS = (20, 20_000)  # rows with all coefficients, and maximum number of their digits in a row
_UNREADABLE = 50


def audit_page(
    report: AuditReport,
    participation: Participation,
    source: str,
    *,
    requirement: Requirement | None = None,
    witnesses: int | None = None,
    options: Mapping[str, Any] | None = None,
    promise: str = "",
    answers: Sequence[tuple[str, str]] = (),
) -> str:
    """Return a self-contained HTML page on ``report``, the audit of ``participation`` from ``source``.

    ``options`` are the options of the audit. ``promise`` describes what a run promises by its settings.
    ``answers`` are further answers, each a title and a text.
    """
    figures, captions = {}, {}
    if report.leak:  # without a sum, there is nothing to draw
        rounds = RoundAxis(participation.rounds)
        figures = {
            "privacy": privacy(report, rounds, requirement),
            "exposure": exposure(report, rounds),
            "series": series(report, rounds),
        }
        figures["participation"], captions["participation"] = participation_map(participation, report.exposed, rounds)
        figures["frequency"], captions["frequency"] = frequency(report)
        figures["groups"], captions["groups"] = group_sizes(report)
    verdict = judge(report)
    listed, problems = report.exposed[:_ROWS], participation.problems
    written = affordable(listed if witnesses is not None else listed[: _quickly_computed(report)], witnesses)
    return render(
        "coterie.auditing",
        "audit.html.j2",
        figures,
        captions=captions,
        source=printable(source, 200),
        size=extent(report, sum(not members for members in participation.members)),
        verdict=verdict,
        measures=measures(report),
        requirement=requirement and requirement.words(report),
        requirement_holds=requirement and requirement.holds(report),
        collusion=collusion_words(report),
        promise=promise,
        answers=answers,
        exposed=[_row(number, found, number < written) for number, found in enumerate(listed)],
        more_exposed=f"{more:,}" if (more := len(report.exposed) - len(listed)) else "",
        not_computed=f"{later:,}" if (later := len(listed) - written) else "",
        leak=least_leak(report),
        preview=preview(participation),
        evidence=evidence_words(gather_evidence(participation, source, options or {})),
        unreadable=[(problem.line, problem.reason, printable(problem.text, 80)) for problem in problems[:_UNREADABLE]],
        unreadable_count=count(participation.unread, "line"),
        unreadable_more=participation.unread > _UNREADABLE,
    )


def _quickly_computed(report: AuditReport) -> int:
    """Return how many witnesses can be computed in some seconds: each takes a pass over the log and over a matrix."""
    rank = min(len(report.rounds), len(report.clients))
    return max(1, _WORK // (sum(report.frequency.values()) + rank**2 + 1))


def _row(number: int, found: Exposure, written: bool) -> dict[str, Any]:
    terms: list[str] = []
    words = "not computed"
    if written:
        words = equation(found.witness, {found.client: Fraction(1)})
        rows, digits = _DETAILS
        if (
            words.startswith("a combination")
            and number < rows
            and sum(map(digits_of, found.witness.values())) <= digits
        ):
            terms = [f"{value} · round {printable(label)}" for label, value in found.witness.items()]
    return {"client": printable(found.client), "round": printable(found.round), "equation": words, "terms": terms}
