"""Markdown: tables and lists, and findings as a written report."""

from collections.abc import Iterable, Iterator, Sequence

from coterie.reports.findings import Findings, Table


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table: the first column is left-aligned, the others, numbers, right-aligned."""
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def bullets(items: Iterable[str]) -> str:
    """Write a list, one item to a line."""
    return "\n".join(f"- {item}" for item in items)


def write_findings(findings: Findings) -> str:
    """Write findings as Markdown, without a title. Drawings are linked by their file names; plots are for pages."""
    return "\n\n".join(part for part in _parts(findings) if part) + "\n"


def _parts(findings: Findings) -> Iterator[str]:
    claims = [part for one in findings.claim_tables for part in _table(one)]
    yield bullets(findings.headlines)
    yield findings.about.strip()
    if not findings.claims_last:
        yield from claims
    for one in findings.tables:
        yield from _table(one)
    if findings.claims_last:
        yield from claims
    if findings.remarks:
        yield f"## {findings.remarks_title}"
        yield bullets(findings.remarks)
    if findings.card:
        rows = [(line.attack, line.against, str(line.outcome), line.why) for line in findings.card]
        yield from _table(Table("Privacy card", ("attack", "against", "outcome", "why"), rows))
    if findings.drawings:
        yield "## Figures"
        for drawing in findings.drawings:
            yield f"![{drawing.file.removesuffix('.png').replace('-', ' ')}]({drawing.file})"


def _table(one: Table) -> Iterator[str]:
    yield f"## {one.title}" if one.title else ""
    yield one.lead
    yield table(one.columns, one.rows)
    yield one.note
