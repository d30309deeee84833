"""An audit in short, for ``print`` and for a notebook."""

from coterie.auditing.findings import AuditReport
from coterie.auditing.verdict import collusion_words, extent, judge, least_leak, measures, whose
from coterie.reports.findings import Findings, Table
from coterie.reports.words import printable

_LISTED = 20  # exposed clients


def audit_overview(report: AuditReport) -> Findings:
    """Return an audit in short: the verdict, its measures and the exposed clients. Names may be anything."""
    verdict = judge(report)
    tables = [Table("", ("measure", "value", "meaning"), [tuple(measure) for measure in measures(report)])]
    if report.exposed:
        listed = [(whose(found.client), printable(found.round)) for found in report.exposed[:_LISTED]]
        more = len(report.exposed) - len(listed)
        note = f"{more:,} more are in report.exposed." if more else ""
        tables.append(Table("Exposed clients", ("client", "since round"), listed, note))
    remarks = [said for said in (collusion_words(report), least_leak(report), verdict.advice) if said]
    return Findings(
        headlines=[f"{verdict.headline}."],
        about=f"{extent(report, 0)}. {verdict.meaning}",
        level=verdict.level,
        tables=tables,
        remarks=remarks,
    )
