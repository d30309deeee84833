"""The verdict on a log that was dropped onto the page. The page sends its bytes, never a path."""

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from coterie.auditing.auditor import audit
from coterie.auditing.findings import AuditReport
from coterie.auditing.logs import Participation, read_log
from coterie.auditing.preview import evidence_words, gather_evidence, preview
from coterie.auditing.verdict import affordable, collusion_words, equation, extent, judge, least_leak, measures
from coterie.cohorts.log_size import MEGABYTE
from coterie.errors import InputError, LogTooLarge
from coterie.reports.charts import sample
from coterie.reports.words import count, printable
from coterie.settings import Option, Settings

MOST_BYTES = 32 * MEGABYTE
"""The largest file that the page sends."""
_MOST_UNPACKED = 64 * MEGABYTE
_SECONDS, _WEAK_SECONDS = 60.0, 2.0
_LISTED, _WITNESSES = 200, 50  # exposed clients in the answer, and how many of them have a witness
_MOST_RANKS = (400, 1000)  # ranks of a matrix: up to the first, many witnesses are quick; up to the second, one is
_POINTS = 400  # of the series over rounds
_UNREADABLE = 20
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True)
class AuditSettings(Settings):
    """How to read a log; the same as the options of ``coterie audit``."""

    name: Annotated[str, Option("Name of the file, for the certificate.")] = "log"
    format: Annotated[str, Option("Format of the log, if it is not clear from the content.")] = ""
    round_column: Annotated[str, Option("Column of the rounds.")] = ""
    client_column: Annotated[str, Option("Column of the clients.")] = ""
    where: Annotated[str, Option("Rows that count, as column=value.")] = ""
    encoding: Annotated[str, Option("Encoding of a text that is not UTF-8, such as latin-1.")] = ""
    keep_order: Annotated[bool, Option("The rounds are in order, whatever their labels are.")] = False
    as_written: Annotated[bool, Option("Names that look alike are different clients.")] = False
    collusion: Annotated[int, Option("Members of a group that may work with the server.", least=0, most=1000)] = 0


def audit_content(settings: AuditSettings, content: bytes, *, seconds: float = _SECONDS) -> dict[str, Any]:
    """Audit the content of a log and return the findings as plain values for JSON.

    A log that takes longer than ``seconds`` gets the verdict of an interrupted audit. Raises
    :class:`InputError` if the log cannot be read.
    """
    if len(content) > MOST_BYTES:
        raise LogTooLarge(f"the page takes files of up to {MOST_BYTES // MEGABYTE} MB; coterie audit has no such limit")
    if content.startswith(_SQLITE):
        raise InputError("a ledger is verified as well as audited, which needs its file: coterie audit LEDGER")
    deadline = time.monotonic() + seconds

    def check_reading(_part: float) -> None:
        if time.monotonic() > deadline:
            raise LogTooLarge(f"reading this log takes more than {seconds:g} seconds; coterie audit has no such limit")

    participation = read_log(
        io.BytesIO(content),
        settings.format or None,
        round_column=settings.round_column or None,
        client_column=settings.client_column or None,
        where=_conditions(settings.where),
        encoding=settings.encoding or None,
        keep_order=settings.keep_order,
        as_written=settings.as_written,
        limit=_MOST_UNPACKED,
        progress=check_reading,
    )

    def check_time(_step: str, _part: float) -> None:
        if time.monotonic() > deadline:
            raise KeyboardInterrupt  # the audit then returns what it has found so far

    report = audit(participation, weak_budget_seconds=_WEAK_SECONDS, collusion=settings.collusion, progress=check_time)
    return _describe(settings, participation, report)


def _describe(settings: AuditSettings, participation: Participation, report: AuditReport) -> dict[str, Any]:
    verdict = judge(report)
    skipped = sum(not len(members) for members in participation.members)
    given = {name: value for name, value in _options(settings).items() if value}
    return {
        "verdict": {
            "level": str(verdict.level),
            "mark": verdict.level.mark,
            "label": verdict.level.label,
            "headline": verdict.headline,
            "meaning": verdict.meaning,
            "advice": verdict.advice,
        },
        "extent": extent(report, skipped),
        "measures": [measure._asdict() for measure in measures(report)],
        "collusion": collusion_words(report),
        "exposed": _rows(report),
        "exposed_count": len(report.exposed),
        "leak": least_leak(report),
        "read": [list(pair) for pair in preview(participation)],
        "evidence": [list(pair) for pair in evidence_words(gather_evidence(participation, settings.name, given))],
        "unreadable": {
            "count": participation.unread,
            "words": count(participation.unread, "line"),
            "lines": [
                {"line": problem.line, "reason": printable(problem.reason, 300), "text": printable(problem.text, 80)}
                for problem in participation.problems[:_UNREADABLE]
            ],
        },
        "series": _series(report),
    }


def _rows(report: AuditReport) -> list[dict[str, Any]]:
    rank = min(len(report.rounds), len(report.clients))
    listed = report.exposed[:_LISTED]
    many, one = _MOST_RANKS
    written = min(affordable(listed) if rank <= many else int(rank <= one), _WITNESSES)
    return [
        {
            "client": printable(found.client),
            "round": printable(found.round),
            "witness": equation(found.witness, {found.client: Fraction(1)}) if number < written else None,
        }
        for number, found in enumerate(listed)
    ]


def _series(report: AuditReport) -> dict[str, list[Any]]:
    """Return strong T and the number of exposed clients after each round; of many rounds, evenly spread ones."""
    places = sample(len(report.rounds), _POINTS)

    def pick(values: Sequence[Any]) -> list[Any]:
        return [values[place] for place in places]

    return {
        "rounds": [printable(label, 24) for label in pick(report.rounds)],
        "strong": pick(report.series.strong_privacy),
        "exposed": pick(report.series.exposed),
    }


def _conditions(text: str) -> dict[str, list[str]]:
    """Return the values that count for each column: "event=aggregated, event=done" names two of one column."""
    conditions: dict[str, list[str]] = {}
    for condition in filter(None, (part.strip() for part in text.split(","))):
        column, equals, value = condition.partition("=")
        if not column.strip() or not equals:
            raise InputError(f"rows that count are written as column=value, not {condition!r}")
        conditions.setdefault(column.strip(), []).append(value.strip())
    return conditions


def _options(settings: AuditSettings) -> Mapping[str, Any]:
    """Return the settings by the options of ``coterie audit`` that say the same."""
    return {
        "--format": settings.format,
        "--round-column": settings.round_column,
        "--client-column": settings.client_column,
        "--where": [part.strip() for part in settings.where.split(",") if part.strip()],
        "--encoding": settings.encoding,
        "--keep-order": settings.keep_order,
        "--as-written": settings.as_written,
        "--collusion": settings.collusion,
    }
